// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"bytes"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// FuzzDecode: accepted input is one document that decodes to the same after encoding, and every mistake names the file.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{"a: x\nb: [1, 2]\n", "a: x\n---\na: y\n", "c: 1\n", "", "a: &a x\nm: {k: *a}\n", "m: {<<: {a: b}}", "? [a]\n: b\n", "a: !!binary eA==\n", "- a\n"} {
		f.Add([]byte(text))
	}
	type form struct {
		A string            `yaml:"a"`
		B []int             `yaml:"b"`
		M map[string]string `yaml:"m"`
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if line := LineOf(text, "a"); line < 1 || line > bytes.Count(text, []byte("\n"))+bytes.Count(text, []byte("\r"))+bytes.Count(text, []byte("\u2028"))+
			bytes.Count(text, []byte("\u2029"))+bytes.Count(text, []byte("\u0085"))+1 {
			t.Errorf("a key in line %d of %q", line, text)
		}
		var got form
		if err := Decode("some.yaml", text, &got); err != nil {
			if !strings.HasPrefix(err.Error(), "some.yaml: ") || len(err.Error()) == len("some.yaml: ") {
				t.Errorf("%v does not name the mistake and the file", err)
			}
			return
		}
		again, err := yaml.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var back form
		if err := Decode("some.yaml", again, &back); err != nil {
			t.Fatalf("%+v is written as %q: %v", got, again, err)
		}
		third, err := yaml.Marshal(back)
		if err != nil || !bytes.Equal(again, third) {
			t.Errorf("%q became %q, %v", again, third, err)
		}
	})
}
