// SPDX-License-Identifier: Apache-2.0

package safeopen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder is taken for one's own only if nobody else can change what is in it.
func TestOwnTree(t *testing.T) {
	const somebody = 4711
	chmod := func(mode os.FileMode, name ...string) func(string) error {
		return func(top string) error { return os.Chmod(filepath.Join(append([]string{top}, name...)...), mode) }
	}
	for name, c := range map[string]struct {
		change func(top string) error
		want   string
	}{
		"own":                         {chmod(0o755), ""},
		"in a folder as /tmp":         {chmod(0o777 | os.ModeSticky), ""},
		"above it others write":       {chmod(0o777), "is writable by its group"},
		"others write":                {chmod(0o757, "catalog"), "catalog is writable by its group or by all"},
		"the group writes":            {chmod(0o775, "catalog", "kernels"), "kernels is writable by its group"},
		"the group writes a file":     {chmod(0o664, "catalog", "kernels", "a.yaml"), "a.yaml is writable by its group"},
		"all add to it":               {chmod(0o777|os.ModeSticky, "catalog"), "catalog is writable by its group or by all"},
		"a link in it":                {func(top string) error { return os.Symlink("/etc/passwd", filepath.Join(top, "catalog", "link")) }, "link is a link"},
		"it is not there":             {func(top string) error { return os.RemoveAll(filepath.Join(top, "catalog")) }, "no such file"},
		"it is a link to such a tree": {func(top string) error { return relink(top, 0o755) }, ""},
		"it is a link, others write":  {func(top string) error { return relink(top, 0o777) }, "is writable by its group"},
	} {
		top := tree(t)
		if err := c.change(top); err != nil {
			t.Fatal(err)
		}
		got, err := OwnTree(filepath.Join(top, "catalog"))
		if c.want == "" && (err != nil || filepath.Base(got) != "catalog" && filepath.Base(got) != "real") ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}

	// What another user has, who is not root.
	for _, of := range []string{"catalog", "catalog/kernels", "catalog/kernels/a.yaml", "."} {
		top, user := tree(t), os.Geteuid()
		if user == 0 {
			if err := os.Chown(filepath.Join(top, of), somebody, -1); err != nil {
				t.Fatal(err)
			}
		} else {
			user = somebody
		}
		if got, err := ownTree(filepath.Join(top, "catalog"), user); err == nil || !strings.Contains(err.Error(), "belongs to user") {
			t.Errorf("%s of another: %q, %v", of, got, err)
		}
	}
}

// relink makes the catalog a link to a folder of the given mode.
func relink(top string, mode os.FileMode) error {
	real := filepath.Join(top, "real")
	if err := os.Rename(filepath.Join(top, "catalog"), real); err != nil {
		return err
	}
	if err := os.Chmod(real, mode); err != nil {
		return err
	}
	return os.Symlink(real, filepath.Join(top, "catalog"))
}

func tree(t *testing.T) string {
	t.Helper()
	top := filepath.Join(t.TempDir(), "top")
	kernels := filepath.Join(top, "catalog", "kernels")
	if err := os.MkdirAll(kernels, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kernels, "a.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return top
}
