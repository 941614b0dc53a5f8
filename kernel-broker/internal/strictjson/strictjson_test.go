// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for text, words := range map[string]string{
		`{"a": 1}` + "\n":  "",
		`{"a": 1, "b": 2}`: `unknown field "b"`,
		`{"a": 1} {}`:      "more than one value",
		`{"a": 1}}`:        "more than one value",
		`{"a": 1`:          "unexpected EOF",
		"":                 "EOF",
		`{"a": "x"}`:       "cannot unmarshal",
	} {
		var into struct{ A int }
		err := Decode([]byte(text), &into)
		switch {
		case words == "" && (err != nil || into.A != 1):
			t.Errorf("%q gives %+v, %v", text, into, err)
		case words != "" && (err == nil || !strings.Contains(err.Error(), words)):
			t.Errorf("%q gives %v, want %q", text, err, words)
		}
	}
}
