// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A configuration that is taken holds to what was checked of it.
func FuzzLoad(f *testing.F) {
	sample, err := os.ReadFile("broker.sample.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	f.Add([]byte("limits:\n  user_rate: .inf\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "broker.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := load(path); err == nil && c.validate() != nil {
			t.Errorf("%q became %+v", text, c)
		}
	})
}
