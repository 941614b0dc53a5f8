// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

// A kernel that is tried says of itself what it likes.
func FuzzReadBoot(f *testing.F) {
	f.Add("6.1.0-slim\n", "ab12\n", "virtio-net sd sr\next4\n", "kexec: no\nit failed\n")
	f.Add("", "", "", "\n\n")
	f.Fuzz(func(t *testing.T, release, id, drivers, kexec string) {
		dir := t.TempDir()
		for name, text := range map[string]string{"release": release, "build_id": id, "drivers": drivers, "kexec": kexec, "modules": kexec} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b, err := readBoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		if b.Release != strings.TrimSpace(release) || b.BuildID != strings.TrimSpace(id) {
			t.Errorf("%+v of %q and %q", b, release, id)
		}
		if !slices.IsSorted(b.Drivers) || len(b.Drivers) > len(strings.Fields(drivers)) {
			t.Errorf("%q of %q", b.Drivers, drivers)
		}
		for i, name := range b.Drivers {
			if len(strings.Fields(name)) != 1 || strings.Contains(name, "-") || i > 0 && b.Drivers[i-1] == name {
				t.Errorf("%q of %q", b.Drivers, drivers)
			}
		}
		if line := lastLine(dir); strings.Contains(line, "\n") {
			t.Errorf("%q is more than a line", line)
		}
	})
}

func TestABootThatSaysTooMuch(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"release", "build_id", "drivers"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("x\n", vm.MostText)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readBoot(dir); err == nil || !strings.Contains(err.Error(), "release") {
		t.Errorf("error is %v", err)
	}
}
