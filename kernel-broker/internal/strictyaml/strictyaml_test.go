// SPDX-License-Identifier: Apache-2.0

package strictyaml

import "testing"

func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n":              "",
		"":                    "f.yaml: empty file",
		"a: 1\nb: 2\n":        `f.yaml: line 2: unknown key "b"`,
		"a: 1\n---\na: 2\n":   "f.yaml: more than one document",
		"a: 1\nb: 2\nc: 3\n":  `f.yaml: line 2: unknown key "b"; line 3: unknown key "c"`,
		"a: 1\n---\n{[broken": "f.yaml: more than one document",
		"a: 1\n\tb: 2\n":      "f.yaml: line 2: found a tab character that violates indentation",
		"a: *b\n":             "f.yaml: unknown anchor 'b' referenced",
	} {
		var into struct {
			A int `yaml:"a"`
		}
		got := ""
		if err := Decode("f.yaml", []byte(text), &into); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestLineOf(t *testing.T) {
	text := []byte("a: 1\n\nb:\n  - 2\n  -\n    c: x\n")
	for _, c := range []struct {
		path []any
		want int
	}{
		{nil, 1}, {[]any{"a"}, 1}, {[]any{"b"}, 3}, {[]any{"b", 0}, 4}, {[]any{"b", 1, "c"}, 6},
		{[]any{"none"}, 1}, {[]any{"b", 7}, 3}, {[]any{"a", 0, "b"}, 1},
	} {
		if got := LineOf(text, c.path...); got != c.want {
			t.Errorf("%v: %d, want %d", c.path, got, c.want)
		}
	}
	if got := LineOf([]byte("{["), "a"); got != 1 {
		t.Errorf("no YAML: %d", got)
	}
}
