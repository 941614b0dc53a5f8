// SPDX-License-Identifier: Apache-2.0

package digest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// The digest of "abc" is published in FIPS 180-2.
func TestOfAndFile(t *testing.T) {
	const abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := Of([]byte("abc")); got != abc {
		t.Errorf("of memory: %s", got)
	}
	path := filepath.Join(t.TempDir(), "abc")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, size, err := File(path); got != abc || size != 3 || err != nil {
		t.Errorf("of a file: %s, %d, %v", got, size, err)
	}
	if _, _, err := File(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
}
