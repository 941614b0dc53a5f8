// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What lies in the current folder may be another user's, and root may stand in it: a recipe there would run its modules' commands, and a
// kernel there would become a profile.
func TestPlantedDefaults(t *testing.T) {
	f := newFixture(t)
	here := t.TempDir()
	t.Chdir(here)
	t.Setenv("HOME", here) // nothing is installed below it
	plant := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plant("catalog/kernels/planted.yaml", "name: planted\nnonsense: yes\n")
	plant("build/kernels/mitgcm/kernel.json", "{}")
	plant("profiles/mitgcm.yaml", "name: mitgcm\napplication: MITgcm\ndescription: x\ndefault_version: 1\nversions:\n  - version: 1\n    kernel: mitgcm\n")
	build := []string{"kernel", "build", "planted", "--publish", "never", "--cache", filepath.Join(here, "cache")}
	hardware := []string{"kernel", "hardware", "nodes.json", "--kernel", "planted", "--cache", filepath.Join(here, "cache")}
	plant("nodes.json", `[{"node":"n1","pci":[],"modaliases":[],"modules":["ext4"],"drivers":[],"filesystems":[]}]`)
	apply := []string{"profile", "apply", "profiles"}

	// The caller's own.
	own := "catalog: " + filepath.Join(here, "catalog")
	for _, command := range [][]string{build, hardware} {
		if _, _, stderr := f.run(command...); !strings.Contains(stderr, own) || !strings.Contains(stderr, "nonsense") {
			t.Errorf("%s: %s", command[1], stderr)
		}
	}
	if _, _, stderr := f.run(apply...); !strings.Contains(stderr, "built kernels: "+filepath.Join(here, "build/kernels")) || strings.Contains(stderr, "is writable") {
		t.Error(stderr)
	}

	// Another user can write them.
	for _, path := range []string{"catalog/kernels", "build/kernels/mitgcm"} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{build, hardware} {
		if _, _, stderr := f.run(command...); !strings.Contains(stderr, "./catalog is not used: ") || !strings.Contains(stderr, "is writable by") ||
			strings.Contains(stderr, "nonsense") || strings.Contains(stderr, own+"\n") {
			t.Errorf("%s: %s", command[1], stderr)
		}
		if _, _, stderr := f.run(append(command, "--catalog", "catalog")...); !strings.Contains(stderr, own) || !strings.Contains(stderr, "nonsense") {
			t.Errorf("%s, named: %s", command[1], stderr)
		}
	}
	f.must(3, "kernels/mitgcm is writable by its group or by all", apply...)
	if _, _, stderr := f.run(append(apply, "--kernels", "build/kernels")...); strings.Contains(stderr, "is writable") {
		t.Errorf("named: %s", stderr)
	}
}
