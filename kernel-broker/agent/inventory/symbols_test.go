// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

func TestSymbols(t *testing.T) {
	root := t.TempDir()
	put := func(path string, content []byte) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := Symbols(root, "6.1.0"); got != nil {
		t.Errorf("without a configuration: %v", got)
	}
	put("boot/config-6.1.0", []byte("CONFIG_SMP=y\nCONFIG_EXT4_FS=m\n# CONFIG_NO_HZ_FULL is not set\nCONFIG_HZ=250\n"))
	if got := Symbols(root, "6.1.0"); len(got) != 2 || !got["SMP"] || !got["EXT4_FS"] {
		t.Errorf("of the distribution's: %v", got)
	}
	if got := Symbols(root, "6.1.1"); got != nil {
		t.Errorf("of another kernel: %v", got)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte("CONFIG_NO_HZ_FULL=y\n"))
	_ = w.Close()
	put("proc/config.gz", packed.Bytes())
	if got := Symbols(root, "6.1.0"); len(got) != 1 || !got["NO_HZ_FULL"] {
		t.Errorf("of the kernel's own: %v", got)
	}
	put("proc/config.gz", packed.Bytes()[:20])
	if got := Symbols(root, "6.1.0"); !got["SMP"] {
		t.Errorf("of one that is damaged: %v", got)
	}
}
