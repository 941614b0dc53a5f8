// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"slices"
	"testing"
	"time"
)

// someCertificate is signed by its own key and says that it is a node's.
func someCertificate(t testing.TB) (key *ecdsa.PrivateKey, der []byte) {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	uri, err := Name{Cluster: "lab", Role: Node, Name: "n1"}.URI()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), URIs: []*url.URL{uri}, NotAfter: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)}
	if der, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key); err != nil {
		t.Fatal(err)
	}
	return key, der
}

// What a peer shows, and what an agent gets from a broker. A certificate has a
// name of the product or none.
func FuzzNameOf(f *testing.F) {
	_, der := someCertificate(f)
	f.Add(der)
	f.Add([]byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, der []byte) {
		list, err := ParseDER([][]byte{der})
		if err != nil {
			return
		}
		name, err := NameOf(list[0])
		if err != nil {
			return
		}
		if err := name.Validate(); err != nil {
			t.Errorf("%v: %v", name, err)
		}
		if again, err := ParseName(name.String()); err != nil || again != name {
			t.Errorf("%v is read as %v, %v", name, again, err)
		}
	})
}

// Files of a certificate and its key, in one text or in two. What is taken for a
// pair can be shown.
func FuzzParsePair(f *testing.F) {
	key, der := someCertificate(f)
	private, err := EncodeKey(key)
	if err != nil {
		f.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	f.Add(certificate, private)
	both := slices.Concat(certificate, private)
	f.Add(both, both)
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		pair, err := ParsePair(certificate, key)
		if err != nil {
			return
		}
		if len(pair.Certificate) == 0 || pair.Leaf == nil || pair.PrivateKey == nil {
			t.Errorf("a pair of %d certificates", len(pair.Certificate))
		}
	})
}
