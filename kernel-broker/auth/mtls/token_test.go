// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func someToken(t testing.TB, node string) Token {
	t.Helper()
	token, err := NewToken(node, encoding.EncodeToString(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokens(t *testing.T) {
	for _, node := range []string{"n1", "rack1.n2", strings.Repeat("n", 64)} {
		token := someToken(t, node)
		got, err := ParseToken(" " + token.Text() + "\n")
		if err != nil || got != token {
			t.Errorf("%q became %+v, %v", token.Text(), got, err)
		}
		if other := someToken(t, node); other.Secret == token.Secret {
			t.Error("two tokens have one secret")
		}
		for _, text := range []string{fmt.Sprint(token), fmt.Sprintf("%v %+v %#v %s", token, token, token, &token)} {
			if strings.Contains(text, token.Secret) {
				t.Errorf("%q tells the secret", text)
			}
		}
	}
}

// What is not a token is refused, without its text in the error.
func TestTokensRefused(t *testing.T) {
	good := someToken(t, "n1")
	for name, text := range map[string]string{
		"empty": "", "no parts": "n1", "two parts": "n1." + good.Secret, "no node": "." + good.Secret + "." + good.Fingerprint,
		"odd node": "n 1." + good.Secret + "." + good.Fingerprint, "short secret": "n1." + good.Secret[1:] + "." + good.Fingerprint,
		"long secret": "n1." + good.Secret + "A." + good.Fingerprint, "odd secret": "n1." + strings.Repeat("+", 43) + "." + good.Fingerprint,
		"short fingerprint": "n1." + good.Secret + "." + good.Fingerprint[1:], "swapped lines": "n1." + good.Secret + ".\n" + good.Fingerprint,
		"long": strings.Repeat("n", 300),
	} {
		got, err := ParseToken(text)
		if !errors.Is(err, kb.ErrInvalid) || got != (Token{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		} else if strings.Contains(err.Error(), good.Secret[5:]) {
			t.Errorf("%s: the error tells the secret: %v", name, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(someToken(f, "n1").Text())
	f.Add("n1.x.y")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err != nil {
			if !errors.Is(err, kb.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if again, err := ParseToken(token.Text()); err != nil || again != token {
			t.Errorf("%q: written and read again it is %+v, %v", text, again, err)
		}
		if token.Text() != strings.TrimSpace(text) {
			t.Errorf("%q is %q: two texts for one token", text, token.Text())
		}
	})
}

func request(t testing.TB, key crypto.Signer, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	der, err := NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestRequests(t *testing.T) {
	own, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	good := request(t, own, nil)
	if key, err := ParseRequest(good); err != nil || !own.PublicKey.Equal(key) {
		t.Errorf("%v, %v", key, err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if _, err := ParseRequest(request(t, edwards, err)); err != nil {
		t.Errorf("ed25519: %v", err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	odd, err2 := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	forged := append([]byte{}, good...)
	forged[len(forged)-1] ^= 1
	for name, der := range map[string][]byte{
		"rsa": request(t, weak, err), "p-224": request(t, odd, err2), "signature": forged, "cut": good[:len(good)-4],
		"more behind": append(append([]byte{}, good...), 0), "empty": nil, "long": make([]byte, 5000),
	} {
		if key, err := ParseRequest(der); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%s: %v, %v", name, key, err)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	key, err := NewKey()
	f.Add(request(f, key, err))
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	f.Add(request(f, edwards, err))
	f.Fuzz(func(t *testing.T, der []byte) {
		public, err := ParseRequest(der)
		if err != nil {
			if !errors.Is(err, kb.ErrInvalid) {
				t.Errorf("%x: %v", der, err)
			}
			return
		}
		if _, err := x509.MarshalPKIXPublicKey(public); err != nil {
			t.Errorf("%x: a key that cannot be certified: %v", der, err)
		}
	})
}
