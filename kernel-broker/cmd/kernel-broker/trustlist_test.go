// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
)

func signed(t *testing.T, k kb.Kernel, key ed25519.PrivateKey) []byte {
	t.Helper()
	envelope, err := signing.Sign(t.Context(), signing.ManifestOf(k, signing.Terms{
		Cluster: "alpha", Made: time.Now(), Expires: time.Now().Add(time.Hour)}), key)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

func TestJudge(t *testing.T) {
	_, own, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k := judged
	other := k
	other.Version = 2
	list := trusting(t, own)
	for name, c := range map[string]struct {
		list     string
		envelope []byte
		err      error
	}{
		"no list, none":           {"", nil, nil},
		"no list, a signature":    {"", signed(t, k, foreign), nil},
		"no list, of another":     {"", signed(t, other, own), signing.ErrMismatch},
		"no list, rubbish":        {"", []byte("rubbish"), signing.ErrMalformed},
		"with a list":             {list, signed(t, k, own), nil},
		"with a list, none":       {list, nil, signing.ErrUnsigned},
		"with a list, foreign":    {list, signed(t, k, foreign), signing.ErrUnknownKey},
		"with a list, of another": {list, signed(t, other, own), signing.ErrMismatch},
	} {
		checkSignature, err := newSignatureCheck(config{TrustList: c.list}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkSignature(k, c.envelope); !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
	}
	checkSignature, err := newSignatureCheck(config{TrustList: list}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stock := k
	stock.Profile = kb.StockProfile
	if err := checkSignature(stock, nil); err != nil {
		t.Errorf("stock, none: %v", err)
	}
	stock.Arguments = []string{"quiet"}
	if err := checkSignature(stock, nil); !errors.Is(err, signing.ErrUnsigned) {
		t.Errorf("stock with arguments, none: %v", err)
	}
	if _, err := newSignatureCheck(config{TrustList: list + "x"}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a list that is not there passes")
	}
}

// judged is a kernel that judges are asked about.
var judged = kb.Kernel{Profile: "p", Version: 1, ImageDigest: digest("1"), BuildID: strings.Repeat("ab", 20), Release: "6.1", Architecture: "x86_64"}

// trusting writes a trust list with one key.
func trusting(t *testing.T, key crypto.Signer) string {
	t.Helper()
	public, err := signing.FormatPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "trust.yaml")
	text := "cluster: alpha\nkeys:\n- name: k\n  public: |\n    " + strings.ReplaceAll(strings.TrimSpace(string(public)), "\n", "\n    ") + "\n"
	if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return list
}
