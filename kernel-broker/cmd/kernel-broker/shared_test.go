// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// policyHost is a broker's host with its policy's file.
type policyHost struct {
	t    *testing.T
	s    shared
	path string
}

func newPolicyHost(t *testing.T, kept store.Store, name string, alone bool) *policyHost {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	return &policyHost{t, shared{store: kept, key: policyKey, file: path, host: name, alone: alone, log: quiet}, path}
}

func (h *policyHost) write(user string) {
	h.t.Helper()
	if err := os.WriteFile(h.path, []byte("administrators:\n  users: ["+user+"]\n"), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *policyHost) remove() {
	h.t.Helper()
	if err := os.Remove(h.path); err != nil {
		h.t.Fatal(err)
	}
}

func (h *policyHost) start() (*authz.Authorizer, error) {
	return openPolicy(h.t.Context(), authz.Options{File: h.s.file, Optional: true, Log: quiet}, h.s)
}

// has starts a broker, which has the policy of a user in force; empty: none.
func (h *policyHost) has(what, user string) *authz.Authorizer {
	h.t.Helper()
	a, err := h.start()
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	h.inForce(what, a, user)
	return a
}

func (h *policyHost) inForce(what string, a *authz.Authorizer, user string) {
	h.t.Helper()
	if got := a.State().Text; (user == "") != (got == "") || !strings.Contains(got, "["+user+"]") && user != "" {
		h.t.Errorf("%s: %q is in force", what, got)
	}
}

// A file that is gone, or no policy any more, lifts no restriction: only broker.yaml does.
func TestAPolicyThatIsGone(t *testing.T) {
	kept := memstore.New()
	h := newPolicyHost(t, kept, "ctl1", true)
	h.has("there never was one", "")
	h.write("alice")
	h.has("there is one", "alice")
	h.remove()
	h.has("removed", "alice")
	h.write("[")
	h.has("damaged", "alice")
	h.write("bob")
	a := h.has("edited", "bob")
	h.write("carol")
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	h.inForce("reloaded", a, "carol")
	h.write("[")
	if err := a.Reload(); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("a damaged one at a reload: %v", err)
	}
	h.inForce("damaged at a reload", a, "carol")
	h.s.file = ""
	h.has("lifted", "")
	h.remove()
	h.s.file = h.path
	h.has("and none since", "")

	// Nothing of it is known while the store is away.
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.start(); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("a store that is away: %v", err)
	}
}

// The record of an earlier version says that there was a policy, and not which one.
func TestAPolicyOfAnEarlierVersionThatIsGone(t *testing.T) {
	kept := memstore.New()
	h := newPolicyHost(t, kept, "ctl1", true)
	mark := `{"file":"/etc/kernel-broker/policy.yaml","since":"2026-11-29T00:00:00Z"}`
	if _, err := kept.Commit(t.Context(), store.Write{Key: policyKey, Value: []byte(mark)}); err != nil {
		t.Fatal(err)
	}
	_, err := h.start()
	var usage usageError
	if !errors.As(err, &usage) {
		t.Fatalf("%v", err)
	}
	for _, words := range []string{"no such file", "2026-11-29", "restore the file", `policy: ""`} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%v lacks %q", err, words)
		}
	}
	h.write("alice")
	h.has("restored", "alice")
	h.remove()
	h.has("and removed", "alice")
}

// The broker that takes over goes by the policy that the other one had, whatever its host's file has, unless somebody edited
// that or asks for it.
func TestBrokersShareAPolicy(t *testing.T) {
	kept := memstore.New()
	one, two := newPolicyHost(t, kept, "ctl1", false), newPolicyHost(t, kept, "ctl2", false)
	one.write("alice")
	one.has("the first", "alice")
	two.has("the second, without a file", "alice")
	two.write("old")
	two.has("with one that nobody knows", "alice")
	two.has("and again", "alice")
	two.write("bob")
	a := two.has("edited", "bob")
	one.has("the first again, with its file as before", "bob")
	one.write("carol")
	one.has("edited, too", "carol")
	two.has("the second's file is old by now", "carol")
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	two.inForce("asked for", a, "bob")
	one.has("and shared", "bob")
	two.write("stale")
	if err := os.Chtimes(two.path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	two.has("edited before what is in force", "bob")
	one.write("bob")
	one.has("the same on both", "bob")
	two.remove()
	two.has("the second's file is gone", "bob")
}

// A trust list likewise; trust_list: none lifts it, and a host without the setting does not.
func TestBrokersShareATrustList(t *testing.T) {
	kept, list := memstore.New(), filepath.Join(t.TempDir(), "trust.yaml")
	text, err := os.ReadFile("../../auth/signing/trust.sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	has := func(what, host, file string, want int) {
		t.Helper()
		trust, err := shared{store: kept, key: trustListKey, file: file, host: host, log: quiet}.trust(t.Context())
		if err != nil || (trust == nil) != (want == 0) || trust != nil && len(trust.Keys) != want {
			t.Errorf("%s: %+v, %v", what, trust, err)
		}
	}
	has("nothing is set", "ctl1", "", 0)
	if _, err := (shared{store: kept, key: trustListKey, file: list, host: "ctl1", log: quiet}).trust(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that never was there: %v", err)
	}
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	keys := strings.Count("\n"+string(text), "\n  - name:")
	has("a file", "ctl1", list, keys)
	has("a host without the file", "ctl2", "/none/trust.yaml", keys)
	has("a host without the setting", "ctl2", "", keys)
	if err := os.WriteFile(list, []byte("keys: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (shared{store: kept, key: trustListKey, file: list, host: "ctl1", log: quiet}).trust(t.Context()); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("a damaged file: %v", err)
	}
	has("lifted", "ctl2", "none", 0)
	has("and none since", "ctl1", "", 0)
}

// A broker that waits would not take over with a file that is named and missing, unless another one has put it in force.
func TestSharedFilesAreLookedForBeforehand(t *testing.T) {
	kept, c := memstore.New(), defaults()
	for key, change := range map[string]func(*config){policyKey: func(c *config) { c.Policy = "/none" }, trustListKey: func(c *config) { c.TrustList = "/none" }} {
		c := c
		if err := checkShared(t.Context(), c, kept); err != nil {
			t.Errorf("by default: %v", err)
		}
		change(&c)
		if err := checkShared(t.Context(), c, kept); err == nil || !strings.Contains(err.Error(), "/none: no such file") {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := kept.Commit(t.Context(), store.Write{Key: key, Value: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		if err := checkShared(t.Context(), c, kept); err != nil {
			t.Errorf("%s, in force: %v", key, err)
		}
	}
}
