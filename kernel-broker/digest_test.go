// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

const emptyDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestValidateDigest(t *testing.T) {
	if err := ValidateDigest(emptyDigest); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"", "sha256:", emptyDigest[7:], emptyDigest[:70], emptyDigest + "0", " " + emptyDigest, emptyDigest + "\n",
		strings.ToUpper(emptyDigest), "sha256:" + strings.ToUpper(emptyDigest[7:]), "sha512:" + emptyDigest[7:],
		"sha256:../" + emptyDigest[10:], strings.Replace(emptyDigest, "e3", "g3", 1), strings.Repeat("x", 1<<20),
	} {
		err := ValidateDigest(bad)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("ValidateDigest(%.80q) = %v", bad, err)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("the error repeats all of its input: %d bytes", len(err.Error()))
		}
	}
}

func FuzzValidateDigest(f *testing.F) {
	f.Add(emptyDigest)
	f.Add("sha256:" + strings.Repeat("0", 64))
	f.Add("sha256:" + strings.Repeat("G", 64))
	f.Add("sha256:")
	f.Add("")
	good := regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	f.Fuzz(func(t *testing.T, text string) {
		if err := ValidateDigest(text); (err == nil) != good.MatchString(text) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("ValidateDigest(%q) = %v", text, err)
		}
	})
}
