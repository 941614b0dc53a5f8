// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"strings"
	"unicode"
)

const operators = "!()=<>$&|"

// Tokens are the words of an expression that are still to be read.
type Tokens struct {
	rest []string
	// Confused: a name was wanted where none stood.
	Confused bool
}

// Split cuts an expression into symbols, operators and Constants; quotes are
// the characters that a constant may stand in.
func Split(expression, quotes string) Tokens {
	var t Tokens
	for rest := strings.TrimSpace(expression); rest != ""; rest = strings.TrimSpace(rest) {
		length := tokenLength(rest, quotes)
		t.rest = append(t.rest, rest[:length])
		rest = rest[length:]
	}
	return t
}

func tokenLength(rest, quotes string) int {
	for _, operator := range []string{"&&", "||", "!="} {
		if strings.HasPrefix(rest, operator) {
			return len(operator)
		}
	}
	if strings.ContainsAny(rest[:1], operators) {
		return 1
	}
	if strings.ContainsAny(rest[:1], quotes) {
		if end := strings.IndexByte(rest[1:], rest[0]); end >= 0 {
			return end + 2
		}
		return len(rest)
	}
	ends := func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(operators+quotes, c) }
	if end := strings.IndexFunc(rest, ends); end > 0 {
		return end
	}
	return len(rest)
}

// Empty reports whether all was read.
func (t *Tokens) Empty() bool { return len(t.rest) == 0 }

// Accept takes the next word if it is this one.
func (t *Tokens) Accept(token string) bool {
	if len(t.rest) == 0 || t.rest[0] != token {
		return false
	}
	t.rest = t.rest[1:]
	return true
}

// Next takes a symbol or a constant.
func (t *Tokens) Next() string {
	if len(t.rest) == 0 || strings.ContainsAny(t.rest[0][:1], operators) {
		t.Confused = true
		return ""
	}
	token := t.rest[0]
	t.rest = t.rest[1:]
	return token
}
