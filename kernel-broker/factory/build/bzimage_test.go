// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadImageOfEachCompression(t *testing.T) {
	size := []byte{1, 2, 3, 4} // what the build appends for the boot loader
	for name, args := range map[string][]string{
		"gzip":  {"gzip", "-c"},
		"xz":    {"xz", "-c", "--check=crc32"},
		"lzma":  {"xz", "-c", "--format=lzma"},
		"lz4":   {"lz4", "-l", "-c"},
		"zstd":  {"zstd", "-c", "-q"},
		"bzip2": {"bzip2", "-c"},
		"lzop":  {"lzop", "-c"},
	} {
		t.Run(name, func(t *testing.T) {
			tool, args := args[0], args[1:]
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("needs %s: %v", tool, err)
			}
			cmd := command(t.Context(), nil, tool, args...)
			cmd.Stdin = bytes.NewReader(fakeELF(t, fakeBuildID))
			packed, err := run(t.Context(), cmd)
			if err != nil {
				t.Fatal(err)
			}
			if tool != "gzip" {
				packed = append(packed, size...)
			}
			path := filepath.Join(t.TempDir(), "bzImage")
			write(t, path, string(imageAround("1.2.3-x", packed)))
			image, err := ReadImage(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			if want := (Image{Release: "1.2.3-x", CommandLineBytes: 2047, BuildID: fakeBuildID}); image != want {
				t.Errorf("got %+v, want %+v", image, want)
			}
		})
	}
}

// The error names the program that unpacks such an image.
func TestReadImageWithoutTheProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	path := filepath.Join(t.TempDir(), "bzImage")
	write(t, path, string(imageAround("1.2.3-x", []byte("\x89LZO\x00\r\n\x1a\n\x10\x40\x20\xa0\x09\x40"))))
	if _, err := ReadImage(t.Context(), path); err == nil || !strings.Contains(err.Error(), "install lzop") {
		t.Errorf("%v", err)
	}
}

func TestReadImageDamaged(t *testing.T) {
	good := fakeImage(t, fakeRelease, fakeBuildID)
	for name, c := range map[string]struct {
		image []byte
		want  string
	}{
		"empty":          {nil, "no bzImage"},
		"no magic":       {make([]byte, 4096), "no bzImage"},
		"truncated":      {good[:len(good)-1], "truncated"},
		"header only":    {good[:headerEnd], "truncated"},
		"other payload":  {imageAround("1", []byte("something else")), "unknown compression"},
		"empty payload":  {imageAround("1", nil), "truncated"},
		"no release":     {imageAround(" ", []byte("x")), "no version string"},
		"broken payload": {imageAround("1", []byte("\x1f\x8b rubbish")), "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bzImage")
			write(t, path, string(c.image))
			_, err := ReadImage(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestBuildIDOfThisProgram(t *testing.T) {
	if _, err := ReadBuildID("/proc/self/exe"); err == nil {
		return // built by a linker that writes one
	} else if !strings.Contains(err.Error(), "no GNU build id") {
		t.Error(err)
	}
}

func FuzzParseImage(f *testing.F) {
	f.Add(imageAround(fakeRelease, []byte("payload")))
	f.Add([]byte("HdrS"))
	f.Fuzz(func(t *testing.T, data []byte) {
		image, payload, err := parseImage(data)
		if err == nil && (image.Release == "" || len(payload) == 0 || len(payload) > len(data)) {
			t.Errorf("got %+v with %d bytes of payload out of %d", image, len(payload), len(data))
		}
	})
}

func FuzzBuildID(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if id, err := buildID(bytes.NewReader(data)); err == nil && id == "" {
			t.Error("no error and no id")
		}
	})
}

// TestImageOfDistribution reads a real kernel where one was fetched already.
func TestImageOfDistribution(t *testing.T) {
	dir, err := DefaultCacheDir()
	if err != nil {
		t.Skipf("no cache: %v", err)
	}
	images, err := filepath.Glob(filepath.Join(dir, "distribution", "*", ManifestFile))
	if err != nil || len(images) == 0 {
		t.Skipf("no kernel fetched yet (kernel-factory distribution): %v", err)
	}
	for _, path := range images {
		manifest, err := ReadManifest(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		image, err := ReadImage(context.Background(), filepath.Join(filepath.Dir(path), manifest.Image.Name))
		if err != nil || image.BuildID != manifest.BuildID {
			t.Errorf("got %+v, %v, the manifest says %s", image, err, manifest.BuildID)
		}
	}
	if _, err := os.Stat(filepath.Dir(images[0])); err != nil {
		t.Error(err)
	}
}
