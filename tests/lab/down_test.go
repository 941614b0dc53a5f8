// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDownOfOtherFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), dir, false); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("a file that is not the lab's: %v", err)
	}
	if err := Down(t.Context(), filepath.Join(dir, "none"), false); err != nil {
		t.Error(err)
	}
}

func TestDownKeepsLogsOnce(t *testing.T) {
	l := &Lab{layout: layout{filepath.Join(t.TempDir(), "lab")}}
	if err := l.layout.make(1); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		l.layout.console("n1"): "console", l.layout.path("nodes/n1/share/cache/big"): "", l.layout.path("var/lib/x"): "",
	} {
		if err := write(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Down(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.layout.console("n1")); err != nil {
		t.Errorf("console: %v", err)
	}
	for _, gone := range []string{"var", "share", "nodes/n1/share/cache"} {
		if _, err := os.Stat(l.layout.path(gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	if err := Down(t.Context(), l.layout.dir, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.layout.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}
