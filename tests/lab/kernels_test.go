// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// fakeImage has only what bzImageRelease reads.
func fakeImage(release string) []byte {
	image := make([]byte, 0x2000)
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(image[0x20e:], 0x1000)
	copy(image[0x1200:], release)
	return image
}

func TestBzImageRelease(t *testing.T) {
	got, err := bzImageRelease(fakeImage("6.1.9-mitgcm (a@b) #1 SMP"))
	if err != nil || got != "6.1.9-mitgcm" {
		t.Errorf("release %q, %v", got, err)
	}
	bad := map[string][]byte{
		"empty": nil, "short": make([]byte, 600), "no magic": make([]byte, 0x2000), "no release": fakeImage(""),
	}
	for name, image := range bad {
		if got, err := bzImageRelease(image); err == nil {
			t.Errorf("%s: release %q, want an error", name, got)
		}
	}
}

func FuzzBzImageRelease(f *testing.F) {
	f.Add(fakeImage("6.1.0"))
	far := fakeImage("6.1.0")
	binary.LittleEndian.PutUint16(far[0x20e:], 0xffff)
	f.Add(far)
	f.Fuzz(func(t *testing.T, image []byte) {
		if release, err := bzImageRelease(image); err == nil && release == "" {
			t.Error("no release and no error")
		}
	})
}

func TestKernelLookUp(t *testing.T) {
	repo := t.TempDir()
	dir := filepath.Join(repo, "build/kernels/slim")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bzImage"), fakeImage("6.1.5-slim x"), 0o644); err != nil {
		t.Fatal(err)
	}
	k, err := findKernel(t.Context(), Options{Kernels: filepath.Join(repo, "build/kernels"), Kernel: "slim"}, t.TempDir())
	if err != nil || k.Release != "6.1.5-slim" || k.Name != "slim" || k.Modules != "" {
		t.Errorf("kernel %+v, %v", k, err)
	}
	if _, err := findKernel(t.Context(), Options{Kernels: repo, Kernel: "none"}, t.TempDir()); err == nil {
		t.Error("a kernel that was not built was found")
	}
}
