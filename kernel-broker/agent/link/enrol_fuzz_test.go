// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"testing"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// The key of an unfinished enrolment is in a file. An accepted key can sign.
func FuzzParseKey(f *testing.F) {
	key, err := mtls.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	text, err := mtls.EncodeKey(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, ok := parseKey(text)
		if !ok {
			return
		}
		if key == nil || key.Public() == nil {
			t.Errorf("%q parses as a key", text)
		}
	})
}

// FuzzKeep answers an enrolment with arbitrary data. Only this node's certificate is kept.
func FuzzKeep(f *testing.F) {
	key, err := mtls.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	e := NewEnroller(EnrolOptions{Node: "n1", Paths: mtls.NodePaths(filepath.Join(dir, "node")), Log: slog.New(slog.DiscardHandler)})
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0x30, 0x80}, []byte{0x30, 0x82, 1, 0})
	f.Fuzz(func(t *testing.T, chain, authority []byte) {
		if e.keep(key, &api.Credentials{Chain: [][]byte{chain}, Authorities: [][]byte{authority}}) != nil {
			return
		}
		leaf, err := x509.ParseCertificate(chain)
		if err != nil {
			t.Fatal(err)
		}
		if name, err := mtls.NameOf(leaf); err != nil || name.Name != "n1" || name.Role != mtls.Node {
			t.Errorf("kept a certificate of %v, %v", name, err)
		}
	})
}
