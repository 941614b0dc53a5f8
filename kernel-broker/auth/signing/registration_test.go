// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// signNow signs what is valid by the clock that NewRegistrationCheck reads.
func signNow(t *testing.T, k kb.Kernel, by crypto.Signer) []byte {
	t.Helper()
	return sign(t, ManifestOf(k, Terms{Cluster: "alpha", Made: time.Now(), Expires: time.Now().Add(time.Hour)}), by)
}

// trustList writes a trust list with one key.
func trustList(t *testing.T, key crypto.Signer) string {
	t.Helper()
	public, err := FormatPublicKey(key.Public())
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

func TestRegistrationCheck(t *testing.T) {
	own, foreign := ed(t), ed(t)
	k := kernel()
	other := k
	other.Version++
	list := trustList(t, own)
	for name, c := range map[string]struct {
		list     string
		envelope []byte
		err      error
	}{
		"no list, none":           {"", nil, nil},
		"no list, a signature":    {"", signNow(t, k, foreign), nil},
		"no list, of another":     {"", signNow(t, other, own), ErrMismatch},
		"no list, rubbish":        {"", []byte("rubbish"), ErrMalformed},
		"with a list":             {list, signNow(t, k, own), nil},
		"with a list, none":       {list, nil, ErrUnsigned},
		"with a list, foreign":    {list, signNow(t, k, foreign), ErrUnknownKey},
		"with a list, of another": {list, signNow(t, other, own), ErrMismatch},
	} {
		check := checkBy(c.list)
		if err := check(k, c.envelope); !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
	}
	check := checkBy(list)
	stock := k
	stock.Profile, stock.Arguments = kb.StockProfile, nil
	if err := check(stock, nil); err != nil {
		t.Errorf("stock, none: %v", err)
	}
	stock.Arguments = []string{"quiet"}
	if err := check(stock, nil); !errors.Is(err, ErrUnsigned) {
		t.Errorf("stock with arguments, none: %v", err)
	}
	if err := checkBy(list+"x")(k, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error("a missing list passes")
	}
}

// A valid signature beside another one with an invalid key id is not registered,
// with a trust list and without.
func TestRegistrationCheckRefusesInvalidKeyIDs(t *testing.T) {
	own, k := ed(t), kernel()
	for _, list := range []string{"", trustList(t, own)} {
		check := checkBy(list)
		for id, want := range map[string]error{
			"x": ErrMalformed, "sha256:": ErrMalformed, "\x1b[2J": ErrMalformed,
			"": nil, "sha256:" + strings.Repeat("5", 64): nil,
		} {
			var e dsse.Envelope
			if err := json.Unmarshal(signNow(t, k, own), &e); err != nil {
				t.Fatal(err)
			}
			e.Signatures = append(e.Signatures, dsse.Signature{KeyID: id, Sig: "eA=="})
			raw, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(k, raw); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("list %q, keyid %q: %v, want %v", list, id, err, want)
			}
		}
	}
}

// checkBy is the check with the trust list of a file; empty: with none.
func checkBy(file string) func(kb.Kernel, []byte) error {
	return NewRegistrationCheck(func() (*Trust, error) {
		if file == "" {
			return nil, nil
		}
		trust, err := ReadTrust(file, nil)
		return &trust, err
	})
}

// A trust list that is a pipe blocks neither the start nor a registration, and one
// without end fills no memory.
func TestTrustListIsARegularFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil { // a sparse file
		t.Skip(err)
	}
	for path, words := range map[string]string{pipe: "is no regular file", "/dev/zero": "is no regular file", large: "has more than 1048576 bytes"} {
		if err := checkBy(path)(kernel(), nil); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "trust list: "+path+" "+words) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
