// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// The list comes from a job's comment, which its user writes.
func FuzzParseCollectors(f *testing.F) {
	for _, seed := range []string{"", "all", "default", "io,syscalls", " io , io", "io,", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseCollectors(text)
		if err != nil {
			return
		}
		var names []string
		for _, c := range list {
			names = append(names, string(c))
		}
		again, err := ParseCollectors(strings.Join(names, ","))
		if len(list) == 0 || err != nil || !slices.Equal(again, list) {
			t.Errorf("%q became %v, which is %v, %v", text, list, again, err)
		}
	})
}

// A result comes from a node. What is read can be written, and read again as the
// same.
func FuzzParseResult(f *testing.F) {
	text, err := Result{Format: Format}.JSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":1,"syscalls":{"x":[1e400]}}`))
	f.Add([]byte(`{"format":1,"syscalls":{"slowest":[{"name":"read","at":"2030-01-02T03:04:05Z","ns":7,"bytes":0,"split":{"call":{"ns":7}}}]}}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := ParseResult(content)
		if err != nil {
			return
		}
		first, err := r.JSON()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := ParseResult(first)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if second, err := back.JSON(); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s\nbecame\n%s\n%v", first, second, err)
		}
	})
}
