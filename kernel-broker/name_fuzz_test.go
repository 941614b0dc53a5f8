// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "testing"

// A parsed reference prints as its input and is valid.
func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{"mitgcm", "mitgcm@1", "a.b-c_d@4294967295", "@", "x@0", "x@01", "x@4294967296", "X"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := ParseRef(text)
		if err != nil {
			return
		}
		if ref.String() != text || ValidateProfileName(ref.Profile) != nil {
			t.Errorf("%q became %+v, which is %q", text, ref, ref.String())
		}
	})
}
