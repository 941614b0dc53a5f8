// SPDX-License-Identifier: Apache-2.0

//go:build lab

package admission

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
)

func TestTry(t *testing.T) {
	for _, name := range []string{"mitgcm", "suite-stock"} {
		t.Run(name, func(t *testing.T) {
			folder, err := filepath.Abs("../../../build/kernels/" + name)
			if err != nil {
				t.Fatal(err)
			}
			image := filepath.Join(folder, "bzImage")
			f, err := Check(t.Context(), Subject{Image: image, Config: filepath.Join(folder, "config")})
			if err != nil {
				t.Fatal(err)
			}
			b, err := Try(t.Context(), image, f, t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, driver := range []string{"virtio_net", "virtio_blk", "ext4", "tmpfs"} {
				if !slices.Contains(b.Drivers, driver) {
					t.Errorf("no driver %s among %v", driver, b.Drivers)
				}
			}
			t.Logf("%s, %s, configuration %s, %v: %s", b.Release, b.BuildID, f.Config, b.Took, strings.Join(b.Drivers, " "))
			other := f
			other.BuildID = strings.Repeat("ab", 20)
			if _, err := Try(t.Context(), image, other, t.TempDir(), nil); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "build id") {
				t.Errorf("another build id: %v", err)
			}
		})
	}
}

// Modules of others are loaded in the boot; an archive with one that does not load is refused.
func TestTryModules(t *testing.T) {
	folder, err := filepath.Abs("../../../build/kernels/suite-modules")
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(folder, "bzImage")
	f, err := Check(t.Context(), Subject{Image: image, Config: filepath.Join(folder, "config")})
	if err != nil {
		t.Fatalf("%v (make kernels KERNELS=suite-modules)", err)
	}
	f.Modules = filepath.Join(folder, modules.ArchiveFile)
	if b, err := Try(t.Context(), image, f, t.TempDir(), nil); err != nil || !strings.Contains(b.loaded, "openafs") {
		t.Errorf("%+v, %v", b, err)
	}
	dir := t.TempDir()
	list := modules.List{Release: f.Release, Load: []string{"extra/none.ko"}}
	if err := os.MkdirAll(filepath.Join(list.Tree(dir), "extra"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(list.Tree(dir), "extra/none.ko"), []byte("no module"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.Modules = filepath.Join(t.TempDir(), modules.ArchiveFile)
	archive, err := os.Create(f.Modules)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(modules.Pack(archive, list, dir), archive.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Try(t.Context(), image, f, t.TempDir(), nil); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "does not load modules none") {
		t.Errorf("a module that is none: %v", err)
	}
}

// An image whose payload is spoiled in the middle passes no header check that
// reads it all, and a guest says so.
func TestTryOfWhatDoesNotBoot(t *testing.T) {
	raw, err := os.ReadFile("../../../build/kernels/mitgcm/bzImage")
	if err != nil {
		t.Fatal(err)
	}
	clear(raw[20_000:60_000])
	image := write(t, "bzImage", raw)
	if _, err := try(t.Context(), image, Finding{}, t.TempDir(), nil, time.Minute); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "does not boot") {
		t.Errorf("error is %v", err)
	}
}
