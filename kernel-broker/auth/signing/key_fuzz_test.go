// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto/ed25519"
	"testing"
)

// A public key is on a node's trust list.
func FuzzParsePublicKey(f *testing.F) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	text, err := FormatPublicKey(public)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := ParsePublicKey(text)
		if err != nil {
			return
		}
		first, err := KeyID(key)
		if err != nil {
			t.Fatal(err)
		}
		again, err := FormatPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		same, err := ParsePublicKey(again)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := KeyID(same); err != nil || first != second {
			t.Errorf("key %s became %s, %v", first, second, err)
		}
	})
}
