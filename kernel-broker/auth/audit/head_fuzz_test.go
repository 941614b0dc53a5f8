// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strings"
	"testing"
)

func FuzzParseHead(f *testing.F) {
	f.Add("1:" + strings.Repeat("a", 64))
	f.Add("01:" + strings.Repeat("0", 64) + "\n")
	f.Add("-1:x")
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := ParseHead(text); err == nil && h.String() != strings.TrimSpace(text) {
			t.Errorf("%q became %q", text, h)
		}
	})
}
