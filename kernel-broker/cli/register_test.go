// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/admission"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
)

// meanwhile is a boot test during which something happens.
func meanwhile(happens func(image, folder string)) bootTest {
	return func(_ context.Context, image string, f admission.Finding, folder string, _ io.Writer) (*admission.Boot, error) {
		happens(image, folder)
		return &admission.Boot{Release: f.Release, BuildID: f.BuildID, Drivers: []string{"virtio_net"}, Took: time.Second}, nil
	}
}

// Changes of a profile by others during the boot test are kept.
func TestRegisterAfterConcurrentChange(t *testing.T) {
	f := newFixture(t)
	image := filepath.Join(bootable(t, t.TempDir(), "mitgcm"), "bzImage")
	register := func(more ...string) []string {
		return append([]string{"kernel", "register", "--profile", "mitgcm", "--kernel", image}, more...)
	}
	f.must(0, "", register("--no-boot-test", "--driver", "ext4")...)
	f.must(0, "", register("--no-boot-test", "--driver", "ext4", "--argument", "quiet", "--default")...)
	f.try = meanwhile(func(string, string) {
		f.must(0, "mitgcm@1 is the default version now", "profile", "promote", "mitgcm@1", "--reason", "2 is wrong")
		f.must(0, "mitgcm@2 quarantined", "profile", "quarantine", "mitgcm@2", "--reason", "corrupts results")
		p, err := f.catalog.Get(t.Context(), "mitgcm")
		if err != nil {
			t.Fatal(err)
		}
		p.Description, p.BootAttempts = "better described", 3
		if _, _, err := f.catalog.Apply(t.Context(), "elsewhere", p); err != nil {
			t.Fatal(err)
		}
		// Another administrator registers another kernel.
		next := p.Versions[0]
		next.Kernel.Version, next.Kernel.Arguments = 3, []string{"nohz=off"}
		p.Versions = append(p.Versions, next)
		if _, _, err := f.catalog.Apply(t.Context(), "elsewhere-too", p); err != nil {
			t.Fatal(err)
		}
	})
	if out := f.must(0, "profile mitgcm applied, 4 versions", register("--argument", "nosmt")...); strings.TrimSpace(out) != "mitgcm@4" {
		t.Errorf("registered as %s", out)
	}
	p, err := f.catalog.Get(t.Context(), "mitgcm")
	if err != nil || p.DefaultVersion != 1 || p.Description != "better described" || p.BootAttempts != 3 || len(p.Versions) != 4 || p.Versions[1].Quarantine == nil {
		t.Errorf("%+v, %v", p, err)
	}
	// Repeating with --default moves the default, but only to a version that jobs may choose.
	f.must(0, "is this kernel already", register("--no-boot-test", "--driver", "ext4", "--argument", "nosmt", "--default")...)
	f.must(3, "quarantined since", register("--no-boot-test", "--driver", "ext4", "--argument", "quiet", "--default")...)
	if p, err = f.catalog.Get(t.Context(), "mitgcm"); err != nil || p.DefaultVersion != 4 {
		t.Errorf("default %d, %v", p.DefaultVersion, err)
	}
}

// The stored and signed bytes are those that were checked and booted, even if the files change.
func TestRegisterStoresCheckedBytes(t *testing.T) {
	f := newFixture(t)
	key, trust := f.key(t)
	dir := bootable(t, t.TempDir(), "mitgcm")
	image, manifest, initrd := filepath.Join(dir, "bzImage"), filepath.Join(dir, "kernel.json"), filepath.Join(dir, "initrd")
	modules := filepath.Join(dir, "modules.tar.zst")
	if err := errors.Join(os.WriteFile(initrd, []byte("an initrd"), 0o644), os.WriteFile(modules, []byte("modules"), 0o644)); err != nil {
		t.Fatal(err)
	}
	nameModules(t, manifest, modules)
	var want []catalog.Artifact
	for _, path := range []string{image, initrd, manifest, modules} {
		file, err := catalog.DescribeFile(path, catalog.MaxInitrd)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, file)
	}
	var private, booted string
	f.try = meanwhile(func(path, folder string) {
		private = folder
		if file, err := catalog.DescribeFile(path, catalog.MaxInitrd); err == nil {
			booted = file.Digest
		}
		if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the folder of the copies: %v, %v", info, err)
		}
		for _, path := range []string{image, manifest, initrd, modules} {
			if err := os.WriteFile(path, []byte("something else"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
	f.must(0, "", "kernel", "register", "--profile", "mitgcm", "--kernel", image, "--initrd", initrd, "--manifest", manifest,
		"--sign-key", key, "--cluster", "alpha")
	ref := kb.Ref{Profile: "mitgcm", Version: 1}
	v := f.version(t, ref)
	if booted != want[0].Digest || v.Kernel.ImageDigest != want[0].Digest || v.Kernel.InitrdDigest != want[1].Digest || v.Kernel.ModulesDigest != want[3].Digest {
		t.Errorf("booted %s, registered %+v", booted, v.Kernel)
	}
	if !slices.ContainsFunc(v.Documents, func(d kb.Document) bool { return d.Digest == want[2].Digest }) {
		t.Errorf("its manifest %s is not among %+v", want[2].Digest, v.Documents)
	}
	if m := f.verify(t, trust, ref); m.Image.Digest != want[0].Digest || m.Initrd.Digest != want[1].Digest || m.Modules.Digest != want[3].Digest {
		t.Errorf("signed: %+v", m)
	}
	if _, err := os.Stat(private); !os.IsNotExist(err) {
		t.Errorf("the copies are left: %v", err)
	}
}

// nameModules names an archive of modules in a manifest.
func nameModules(t *testing.T, manifest, archive string) {
	t.Helper()
	file, err := catalog.DescribeFile(archive, catalog.MaxModules)
	if err != nil {
		t.Fatal(err)
	}
	m, err := build.ReadManifest(filepath.Dir(manifest))
	if err != nil {
		t.Fatal(err)
	}
	m.ModuleArchive = &build.File{Name: filepath.Base(archive), Digest: file.Digest, Size: int64(file.Size)}
	if err := m.Write(filepath.Dir(manifest)); err != nil {
		t.Fatal(err)
	}
}

// A file that cannot be copied is refused at once, and nothing is left of it.
func TestRegisterIrregularFile(t *testing.T) {
	f := newFixture(t)
	t.Setenv("TMPDIR", t.TempDir())
	kernel := bootable(t, t.TempDir(), "mitgcm")
	image := filepath.Join(kernel, "bzImage")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		words     string
		arguments []string
	}{
		"image is a FIFO":       {"fifo is no regular file", []string{"--kernel", fifo}},
		"image is a device":     {"/dev/zero is no regular file", []string{"--kernel", "/dev/zero"}},
		"initrd is a FIFO":      {"fifo is no regular file", []string{"--kernel", image, "--initrd", fifo}},
		"initrd is empty":       {"empty has 0 bytes", []string{"--kernel", image, "--initrd", empty}},
		"manifest is a FIFO":    {"fifo is no regular file", []string{"--kernel", image, "--manifest", fifo}},
		"configuration, a FIFO": {"fifo is no regular file", []string{"--kernel", image, "--config-file", fifo}},
	} {
		f.must(3, c.words, append([]string{"kernel", "register", "--no-boot-test", "--driver", "x", "--profile", "mitgcm"}, c.arguments...)...)
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
	if n := f.files.count(); n != 0 {
		t.Errorf("stored: %d files", n)
	}
}

// A manifest of another image is found before anything is booted.
func TestRegisterWithMismatchedManifest(t *testing.T) {
	f := newFixture(t)
	kernel := bootable(t, t.TempDir(), "mitgcm")
	manifest := filepath.Join(kernel, "kernel.json")
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	image, err := catalog.DescribeFile(filepath.Join(kernel, "bzImage"), catalog.MaxInitrd)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, []byte(strings.Replace(string(text), image.Digest, "sha256:"+strings.Repeat("e", 64), 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	f.try = meanwhile(func(string, string) { t.Error("it was booted") })
	f.must(3, manifest+": image is ", "kernel", "register", "--profile", "mitgcm", "--kernel", image.Path, "--manifest", manifest)
}
