// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// A configuration is the same with another system's line ends, with blanks at the end, and as /proc/config.gz has it.
func TestReadConfig(t *testing.T) {
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write([]byte("CONFIG_A=y\n# CONFIG_B is not set\n")); err != nil {
		t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plain": "CONFIG_A=y\n# CONFIG_B is not set\n", "line ends": "CONFIG_A=y\r\n# CONFIG_B is not set\r\n",
		"blanks": "CONFIG_A=y \n# CONFIG_B is not set\t", "packed": packed.String(),
	} {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := ReadConfig(path)
		if err != nil || len(config) != 2 || config["A"] != "y" || config["B"] != Off {
			t.Errorf("%s: %v, %v", name, config, err)
		}
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, packed.Bytes()[:packed.Len()-9], 0o600); err != nil {
		t.Fatal(err)
	}
	if config, err := ReadConfig(path); err == nil {
		t.Errorf("one that is cut: %v", config)
	}
}
