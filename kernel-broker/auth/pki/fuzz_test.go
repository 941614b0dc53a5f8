// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Records of nodes are what lets a node in. Whatever stands in one, a token that
// was not made for the node opens nothing.
func FuzzRecord(f *testing.F) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, record := range []Record{
		{Node: "n1", Token: &Pending{Hash: digest.Of([]byte("secret")), Expires: now.Add(time.Hour), By: "root"}},
		{Node: "n1", Token: &Pending{Hash: digest.Of([]byte("secret")), Expires: now, Key: "k"}, Issued: []Issued{{Serial: "1f", NotAfter: now}}},
		{Node: "n1", Revoked: &Revocation{At: now, By: "root"}},
	} {
		text, err := json.Marshal(record)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "secret", "k")
	}
	f.Add([]byte(`{"node":"n1","token":{"hash":""}}`), "", "")
	f.Add([]byte("null"), "", "")
	f.Fuzz(func(t *testing.T, value []byte, secret, key string) {
		r, err := decode(store.Record{Key: recordPrefix + "n1", Value: value})
		if err != nil {
			return
		}
		if r.Node != "n1" {
			t.Fatalf("record of node %q", r.Node)
		}
		begin := r.begin(now)
		if r.Revoked.Voids(begin) {
			t.Errorf("a certificate from %v on is void, revoked at %v", begin, r.Revoked.At)
		}
		before := r.Token
		if err := r.use(secret, key, now); err == nil {
			if before == nil || before.Hash != digest.Of([]byte(secret)) || !now.Before(before.Expires) || r.Token.Key != key {
				t.Errorf("%q opens %s", secret, value)
			}
			if err := r.use(secret, key+"x", now); key != "" && err == nil {
				t.Error("a token is used twice")
			}
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

// The authority's file may be a site's own.
func FuzzReadGeneration(f *testing.F) {
	secrets, err := newSite(f).secrets.List(f.Context(), AuthorityPrefix)
	if err != nil || len(secrets) != 1 {
		f.Fatal(secrets, err)
	}
	text := secrets[0].Text
	f.Add(text)
	f.Add(bytes.Replace(text, []byte("-----BEGIN CERTIFICATE-----"), append(bytes.Clone(text), []byte("-----BEGIN CERTIFICATE-----")...), 1))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := parseGeneration(text)
		if err != nil {
			return
		}
		if k.certificate == nil || k.key == nil || !k.certificate.IsCA {
			t.Errorf("an authority of %+v", k)
		}
	})
}
