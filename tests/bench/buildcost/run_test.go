// SPDX-License-Identifier: Apache-2.0

package buildcost

import (
	"os"
	"path/filepath"
	"testing"
)

// A cache holds the trees of other recipes beside the one that is built.
func TestTree(t *testing.T) {
	r := run{cache: t.TempDir()}
	if tree, err := r.tree(); err == nil {
		t.Errorf("no objects: %q", tree)
	}
	objects := func(name, source string) {
		t.Helper()
		dir := filepath.Join(r.cache, "compiled", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(source, "Makefile"), filepath.Join(dir, "Makefile")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(r.cache, "source/linux-patched/linux"), 0o755); err != nil {
		t.Fatal(err)
	}
	objects("small-config", "/source/linux/linux")
	objects("small-instrumented", "/source/linux/linux")
	if tree, err := r.tree(); tree != "/source/linux/linux" || err != nil {
		t.Errorf("%q, %v", tree, err)
	}
	objects("small-pgo", "/source/linux-patched/linux")
	if tree, err := r.tree(); err == nil {
		t.Errorf("two trees: %q", tree)
	}
}
