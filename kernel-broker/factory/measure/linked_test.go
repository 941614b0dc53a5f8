// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Addresses that a guest with several CPUs is traced at are those of the link map;
// what it is measured with stays as it was.
func TestTracedAtTheLinkedAddresses(t *testing.T) {
	b := fixedBench(t)
	qemu := filepath.Join(filepath.SplitList(os.Getenv("PATH"))[0], "qemu-system-x86_64")
	if err := os.WriteFile(qemu, []byte("#!/bin/sh\necho \"$@\" >arguments\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := Kernel{Name: "traced", Dir: t.TempDir()}
	if err := os.WriteFile(k.image(), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w := everyKey(t)
	for name, run := range map[string]func(dir string) error{
		"trace":    func(dir string) error { _, _, err := b.Trace(t.Context(), k, w, dir); return err },
		"branches": func(dir string) error { _, err := b.Branches(t.Context(), k, w, [2]uint64{}, dir); return err },
		"measure":  func(dir string) error { _, err := b.Measure(t.Context(), k, w, w.Test, filepath.Dir(dir)); return err },
	} {
		dir := filepath.Join(t.TempDir(), "run1")
		if err := run(dir); err == nil || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("%s: %v", name, err)
		}
		given, err := os.ReadFile(filepath.Join(dir, "arguments"))
		if fixed := strings.Contains(string(given), " nokaslr norandmaps"); err != nil || fixed != (name != "measure") {
			t.Errorf("%s: %s, %v", name, given, err)
		}
	}
}
