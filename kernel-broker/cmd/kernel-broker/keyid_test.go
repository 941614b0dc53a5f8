// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
)

// A true signature with another beside it whose key has no name that a key can
// have is not registered, with a trust list and without.
func TestJudgeRefusesKeysWithoutAName(t *testing.T) {
	_, own, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k := judged
	list := trusting(t, own)
	for _, trust := range []string{"", list} {
		checkSignature, err := newSignatureCheck(config{TrustList: trust}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]error{
			"x": signing.ErrMalformed, "sha256:": signing.ErrMalformed, "\x1b[2J": signing.ErrMalformed,
			"": nil, digest("5"): nil,
		} {
			var e dsse.Envelope
			if err := json.Unmarshal(signed(t, k, own), &e); err != nil {
				t.Fatal(err)
			}
			e.Signatures = append(e.Signatures, dsse.Signature{KeyID: id, Sig: "eA=="})
			raw, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkSignature(k, raw); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("list %q, keyid %q: %v, want %v", trust, id, err, want)
			}
		}
	}
}
