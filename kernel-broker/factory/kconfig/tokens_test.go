// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		expression, quotes string
		want               []string
	}{
		{"", `"`, nil},
		{"A&&!B || (C!=y)", `"`, []string{"A", "&&", "!", "B", "||", "(", "C", "!=", "y", ")"}},
		{`A="x y"`, `"`, []string{"A", "=", `"x y"`}},
		{`A='x y'`, `"'`, []string{"A", "=", "'x y'"}},
		{`A='x y'`, `"`, []string{"A", "=", "'x", "y'"}},
		{`A="open`, `"`, []string{"A", "=", `"open`}},
		{"A\u2000=\u00a0B ", `"`, []string{"A", "=", "B"}}, // blanks that are not ASCII, too
		{"$(B)<3", `"`, []string{"$", "(", "B", ")", "<", "3"}},
	} {
		if got := Split(c.expression, c.quotes).rest; !slices.Equal(got, c.want) {
			t.Errorf("%s with %s: %q, want %q", c.expression, c.quotes, got, c.want)
		}
	}
}

func TestReading(t *testing.T) {
	tokens := Split("A = )", `"`)
	if tokens.Accept("B") || tokens.Next() != "A" || !tokens.Accept("=") || tokens.Confused || tokens.Empty() {
		t.Errorf("%+v", tokens)
	}
	if tokens.Next() != "" || !tokens.Confused || !tokens.Accept(")") || !tokens.Empty() {
		t.Errorf("%+v", tokens)
	}
}
