// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only an explicit "none" counts as unlocked.
func FuzzLocked(f *testing.F) {
	for _, seed := range []string{"[none] integrity confidentiality\n", "none [integrity] confidentiality\n", "", "[]", "none", "][none]"} {
		f.Add(seed)
	}
	k := Kexec{Sys: f.TempDir()}
	path := filepath.Join(k.Sys, "kernel/security/lockdown")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if locked, err := k.Locked(); err == nil && !locked && !strings.Contains(text, "[none]") {
			t.Errorf("%q is not locked", text)
		}
	})
}
