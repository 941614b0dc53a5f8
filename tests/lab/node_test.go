// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

func TestParseAnswer(t *testing.T) {
	r, err := parseAnswer([]byte("3 4 2\nout\nE\n"))
	if err != nil || r != (Result{Stdout: "out\n", Stderr: "E\n", Exit: 3}) {
		t.Errorf("answer %+v, %v", r, err)
	}
	for _, bad := range []string{"", "0 0 0", "0 1 0\n", "x 0 0\n", "0 0\n", "0 -1 1\n", "0 0 0\nmore", "0 0 0 0\n"} {
		if r, err := parseAnswer([]byte(bad)); err == nil {
			t.Errorf("answer %q: %+v, want an error", bad, r)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte("0 3 0\nok\n"))
	f.Add([]byte("0 9223372036854775807 9223372036854775807\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := parseAnswer(raw)
		if err == nil && len(r.Stdout)+len(r.Stderr) > len(raw) {
			t.Error("more came out than went in")
		}
	})
}
