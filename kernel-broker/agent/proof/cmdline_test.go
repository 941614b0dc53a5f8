// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"slices"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"", nil},
		{" root=/dev/vda  ro\n", []string{"root=/dev/vda", "ro"}},
		{`a="b c" d`, []string{`a="b c"`, "d"}},
		{`"a b=c" d`, []string{`"a b=c"`, "d"}},
		{"ro -- single", []string{"ro"}},
		{`open="quote ends never`, []string{`open="quote ends never`}},
	} {
		if got := Split(c.line); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.line, got, c.want)
		}
	}
}

func TestValue(t *testing.T) {
	arguments := Split(`root=/dev/a root="/dev/b" kernelbroker.token=` + "0123456789abcdef0123456789abcdef")
	if got := Value(arguments, "root"); got != "/dev/b" {
		t.Errorf("root: %q", got)
	}
	if got := Value(arguments, kb.TokenParameter); got != "0123456789abcdef0123456789abcdef" {
		t.Errorf("token: %q", got)
	}
}
