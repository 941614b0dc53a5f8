// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
)

// A key that is read can sign, and is of a kind that nodes know.
func FuzzParse(f *testing.F) {
	private, _, err := Generate(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(private)
	f.Add([]byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		// How long a passphrase takes is in the file, and whose file it is waits.
		by, err := Parse(text, func() ([]byte, error) { return nil, errors.New("nobody to ask") })
		if err != nil {
			return
		}
		if _, err := signing.FormatPublicKey(by.Public()); err != nil {
			t.Error(err)
		}
	})
}

// What is taken from the URI of a token becomes arguments of a program.
func FuzzParseTokenURI(f *testing.F) {
	f.Add("pkcs11:token=hsm;id=%01?module-path=/x.so&pin-source=file:/y")
	f.Add("pkcs11:token=hsm;token=x;id=%zz")
	f.Add("pkcs11:?;&")
	f.Fuzz(func(t *testing.T, uri string) {
		token, pin, err := parseTokenURI(uri)
		if err != nil {
			return
		}
		if token.name == "" || token.id == "" || !filepath.IsAbs(token.module) || pin != "" && !filepath.IsAbs(pin) {
			t.Errorf("%q became %+v, %q", uri, token, pin)
		}
	})
}
