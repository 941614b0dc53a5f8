package config

import "testing"

// A configuration that is taken holds to what was checked of it.
func FuzzParse(f *testing.F) {
	f.Add([]byte("broker: ctl:7440\n"))
	f.Add([]byte("node: n1\nbroker: '[::1]:1'\nkexec:\n  program: /sbin/kexec\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := Parse(text); err == nil && c.validate() != nil {
			t.Errorf("%q became %+v", text, c)
		}
	})
}
