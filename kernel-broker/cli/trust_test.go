// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// fullFor is a store that is full when a node's record is written.
type fullFor struct {
	store.Store
	node string
}

func (s fullFor) Commit(ctx context.Context, writes ...store.Write) (int64, error) {
	for _, w := range writes {
		if s.node != "" && strings.HasSuffix(w.Key, "/"+s.node) {
			return 0, store.ErrFull
		}
	}
	return s.Store.Commit(ctx, writes...)
}

// trusting gives the fixture's broker a certificate authority.
func trusting(t *testing.T) func(*server.Options) { return trustingBut(t, "") }

// trustingBut is one that cannot record a node.
func trustingBut(t *testing.T, node string) func(*server.Options) {
	t.Helper()
	authority := catest.Open(t, pki.Options{Cluster: "lab", Host: "ctl", Lifetime: time.Hour})
	registry, err := pki.OpenRegistry(t.Context(), pki.RegistryOptions{
		Store: fullFor{memstore.New(), node}, Cluster: "lab", Authority: authority, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.TLS = &server.TLS{Source: authority, Registry: registry} }
}

// A token is known to whom it is printed only, so what was made is printed also when a later one fails.
func TestTokensBeforeAFailure(t *testing.T) {
	f := newFixture(t, trustingBut(t, "bad"))
	printed := strings.Fields(f.must(4, "store full", "node", "token", "n[1-2]", "bad", "n3"))
	if len(printed) != 2 {
		t.Fatalf("printed %q", printed)
	}
	for i, name := range []string{"n1", "n2"} {
		if token, err := mtls.ParseToken(printed[i]); err != nil || token.Node != name {
			t.Errorf("%v, %v", token, err)
		}
	}
	var list struct {
		Tokens []struct{ Token string }
	}
	if out := f.must(4, "store full", "node", "token", "n1", "bad", "-o", "json"); json.Unmarshal([]byte(out), &list) != nil || len(list.Tokens) != 1 {
		t.Errorf("as JSON: %s", out)
	}
	if out := f.must(4, "store full", "node", "token", "bad", "n1", "-o", "json"); out != "" {
		t.Errorf("none was made: %s", out)
	}
}

func TestNodeTokens(t *testing.T) {
	f := newFixture(t, trusting(t))
	out := f.must(0, "token of n1, until ", "node", "token", "n1", "--ttl", "10m")
	token, err := mtls.ParseToken(out)
	if err != nil || token.Node != "n1" {
		t.Errorf("%v, %v", token, err)
	}
	path := filepath.Join(t.TempDir(), "n2.token")
	if out := f.must(0, path, "node", "token", "n2", "--output-file", path); out != "" {
		t.Errorf("with a file it prints %q", out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if token, err := mtls.ParseToken(string(text)); err != nil || token.Node != "n2" {
		t.Errorf("%v, %v", token, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	list := f.must(0, "", "node", "certificates")
	if !strings.Contains(list, "n1") || !strings.Contains(list, "token") || strings.Contains(list, token.Secret) {
		t.Errorf("list: %s", list)
	}
	f.must(0, "n1 revoked, 0 connections cut", "node", "revoke", "n1", "--reason", "test")
	if list := f.must(0, "", "node", "certificates", "n1"); !strings.Contains(list, "revoked") || !strings.Contains(list, "test") || strings.Contains(list, "token") {
		t.Errorf("list: %s", list)
	}
	f.must(3, `node "n9" has never had a token`, "node", "certificates", "n9")
	f.must(3, "720h", "node", "token", "n1", "--ttl", "721h")
	f.must(2, "arg", "node", "token")

	// Many at a time: each begins with its node's name.
	printed := strings.Fields(f.must(0, "token of n5, until ", "node", "token", "n[3-4]", "n5"))
	for i, name := range []string{"n3", "n4", "n5"} {
		if token, err := mtls.ParseToken(printed[i]); err != nil || token.Node != name {
			t.Errorf("%v, %v", token, err)
		}
	}
	dir := t.TempDir()
	if out := f.must(0, filepath.Join(dir, "n07"), "node", "token", "n[06-07]", "--output-dir", dir); out != "" {
		t.Errorf("with a folder it prints %q", out)
	}
	text, err = os.ReadFile(filepath.Join(dir, "n06"))
	if err != nil {
		t.Fatal(err)
	}
	if token, err := mtls.ParseToken(string(text)); err != nil || token.Node != "n06" {
		t.Errorf("%v, %v", token, err)
	}
	f.must(2, "--output-dir", "node", "token", "n[1-2]", "--output-file", path)
	f.must(2, "exclude each other", "node", "token", "n1", "--output-file", path, "--output-dir", dir)
	f.must(3, "host list", "node", "token", "n[1-")
}

func TestAuthority(t *testing.T) {
	f := newFixture(t, trusting(t))
	first := f.must(0, "cluster lab, fingerprint ", "authority", "show")
	f.must(0, "the new authority has the fingerprint ", "authority", "rotate")
	second := f.must(0, "", "authority", "show")
	if list, err := mtls.ParseCertificates([]byte(second)); err != nil || len(list) != 2 || !strings.HasPrefix(second, strings.TrimSpace(first)) {
		t.Errorf("%d authorities, %v", len(list), err)
	}
	newFixture(t).must(3, "TLS is off", "authority", "show")
}
