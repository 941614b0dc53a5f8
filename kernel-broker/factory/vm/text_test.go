// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTexts(t *testing.T) {
	for size, fits := range map[int]bool{0: true, 5: true, MostText: true, MostText + 1: false, 3 * MostText: false} {
		path := filepath.Join(t.TempDir(), "said")
		text := bytes.Repeat([]byte("0123456789abcdefg\n"), size/18+1)[:size]
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := ReadText(path)
		if fits != (err == nil) || fits && !bytes.Equal(got, text) {
			t.Errorf("of %d bytes %d, %v", size, len(got), err)
		}
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%v does not name the file", err)
		}
		if end, err := ReadEnd(path); err != nil || !bytes.Equal(end, text[max(0, size-MostText):]) {
			t.Errorf("of %d bytes the end has %d, %v", size, len(end), err)
		}
	}
	if _, err := ReadEnd(t.TempDir()); err == nil {
		t.Error("a folder has an end")
	}
}
