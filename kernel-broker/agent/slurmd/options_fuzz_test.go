// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// systemd reads the unit's options back unchanged and nothing else: one variable on one line.
func FuzzOptions(f *testing.F) {
	f.Add("-N n1 --conf-server ctl:6817")
	f.Add(`"; $HOME ` + "`id` \\")
	f.Add("-D\nLD_PRELOAD=/x")
	f.Fuzz(func(t *testing.T, options string) {
		dir := t.TempDir()
		mark, path := filepath.Join(dir, "slurmd.mark"), filepath.Join(dir, "options")
		if err := os.WriteFile(claimFile(mark), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Options(mark, path, options)
		if more := strings.ContainsAny(options, "\n\x00"); (err != nil) != more {
			t.Fatalf("%q: %v", options, err)
		}
		if err != nil {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%q is refused, and there", options)
			}
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		inside, begins := strings.CutPrefix(string(text), `SLURMD_OPTIONS="`)
		inside, ends := strings.CutSuffix(inside, "\"\n")
		var back strings.Builder
		escaped := false
		for _, c := range []byte(inside) {
			switch {
			case escaped:
				back.WriteByte(c)
				escaped = false
			case c == '\\':
				escaped = true
			case strings.IndexByte("\"`$\n", c) >= 0:
				t.Errorf("%q ends in %q", options, text)
			default:
				back.WriteByte(c)
			}
		}
		if !begins || !ends || escaped || back.String() != strings.TrimSpace(options+" -b") {
			t.Errorf("%q became %q", options, text)
		}
	})
}
