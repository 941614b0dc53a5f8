// SPDX-License-Identifier: Apache-2.0

package jsonfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "r.json")
	for _, v := range []int{1, 2} {
		if err := Write(path, map[string]int{"n": v}); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "{\n  \"n\": 2\n}\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := Write(path, func() {}); err == nil {
		t.Error("a function was written")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "{\n  \"n\": 2\n}\n" {
		t.Errorf("after one that failed: %q, %v", text, err)
	}
	if err := Write(path+"/under", 1); err == nil {
		t.Error("a file was taken for a folder")
	}
}
