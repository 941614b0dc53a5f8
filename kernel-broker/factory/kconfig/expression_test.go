// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestExpressions(t *testing.T) {
	config := Config{"A": "y", "M": "m", "S": `"text"`, "N": "8"}
	for text, want := range map[string]bool{
		"A": true, "!A": false, "M": true, "B": false, "A && !B": true, "B || (A && M)": true,
		"A = y": true, "A != y": false, "M = m": true, "M=y": false, `S = "text"`: true, "N = 8": true,
		"B = n": true, "B = 'n'": true, "!(A || B)": false, "$(cc-option,-x)": true, "A &&": true, "A B": true, "": true,
		"N > 4":     true,
		"!(A && B)": true, "A && B": false, "B || M": true, "B && A || A": true, "A && (B || M)": true,
		`S="y z"`: false, "(A": true,
	} {
		if got := readExpression(text)(config); got != want {
			t.Errorf("%q holds: %v", text, got)
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"":                 nil,
		"A&&!B || (C!=y)":  {"A", "&&", "!", "B", "||", "(", "C", "!=", "y", ")"},
		`A="x y"`:          {"A", "=", `"x y"`},
		`A='x y'`:          {"A", "=", "'x y'"},
		`A="open`:          {"A", "=", `"open`},
		"A\u2000=\u00a0B ": {"A", "=", "B"}, // blanks that are not ASCII, too
		"$(B)<3":           {"$", "(", "B", ")", "<", "3"},
	} {
		if got := words.FindAllString(text, -1); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// What cannot be read holds always; everything else is what its opposite is not.
func FuzzExpression(f *testing.F) {
	for _, text := range []string{`A && (B || !C) && D != "x y" && E = 5`, "A &&", "((", "!", `"`, "A = m", "A<B", "$(x)"} {
		f.Add(text)
	}
	config := Config{"A": "y", "B": "m", "D": `"x y"`, "E": "5"}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, known := parseExpression(text)
		if !known {
			if !parsed(config) {
				t.Errorf("%q cannot be read, and does not hold", text)
			}
			return
		}
		if strings.Count(text, "(")+strings.Count(text, "!") > nested-3 || strings.ContainsAny(text, "\"'") {
			return // one more is one too many, or stands in a constant
		}
		opposite, known := parseExpression("!(" + text + ")")
		if !known || opposite(config) == parsed(config) {
			t.Errorf("%q is %t, and so is its opposite (%t)", text, parsed(config), known)
		}
	})
}

// A configuration that is read and written stays the same one.
func FuzzParseConfig(f *testing.F) {
	f.Add("# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=\"x y\"\n#\nCONFIG_D\nCONFIG_=\n")
	f.Add("CONFIG_A=y\n# CONFIG_A is not set\nCONFIG_A=m\r\n# CONFIG_X=5 is not set\nCONFIG_B=n")
	f.Fuzz(func(t *testing.T, text string) {
		config := ParseConfig(text)
		for symbol := range config {
			if strings.Contains(symbol, "\n") || !strings.Contains(text, "CONFIG_"+symbol) {
				t.Errorf("%q is not in %q", symbol, text)
			}
		}
		if back := ParseConfig(config.Text()); !maps.Equal(back, config) {
			t.Errorf("%q became %q", config, back)
		}
	})
}
