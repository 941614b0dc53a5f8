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

func TestKeyLine(t *testing.T) {
	for key, want := range map[string]int{"a": 1, "b": 3, "none": 1} {
		if got := KeyLine([]byte("a: 1\n\nb:\n  - 2\n"), key); got != want {
			t.Errorf("%s: %d, want %d", key, got, want)
		}
	}
}
