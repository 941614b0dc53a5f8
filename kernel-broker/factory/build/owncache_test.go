// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// After sudo with a user's environment the default cache would be that user's.
func TestCacheOfAnotherUser(t *testing.T) {
	const somebody = 4711
	home, me := t.TempDir(), os.Geteuid()
	dir := filepath.Join(home, ".cache", "kernel-broker")
	if got, err := ownCache(dir, me); err != nil || got != dir {
		t.Errorf("not made yet: %q, %v", got, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := ownCache(dir, me); err != nil || got != dir {
		t.Errorf("own: %q, %v", got, err)
	}
	user := somebody
	if me == 0 { // what is root's is everybody's
		user = 0
		for _, path := range []string{dir, filepath.Dir(dir)} {
			if err := os.Chown(path, somebody, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, what := range []string{"it is there", "it would be made there"} {
		if got, err := ownCache(dir, user); err == nil || !strings.Contains(err.Error(), "is another user's") {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KB_CACHE", dir)
	if got, err := DefaultCacheDir(); err != nil || got != dir {
		t.Errorf("named: %q, %v", got, err)
	}
}
