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
