// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// A file that is gone lifts no restriction: once there was one, the broker starts without only where broker.yaml says so.
func TestAPolicyThatIsGone(t *testing.T) {
	kept := memstore.New()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	start := func(file string) (*authz.Authorizer, error) {
		return openPolicy(t.Context(), authz.Options{File: file, Optional: true, Log: slog.New(slog.DiscardHandler)}, kept)
	}
	inForce := func(what, file, want string) *authz.Authorizer {
		t.Helper()
		a, err := start(file)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := a.State().Policy.File; got != want {
			t.Fatalf("%s: %q is in force", what, got)
		}
		return a
	}
	gone := func(what string) {
		t.Helper()
		_, err := start(file)
		var usage usageError
		if !errors.As(err, &usage) {
			t.Fatalf("%s: %v", what, err)
		}
		for _, words := range []string{file + ": no such file", "restore the file", `policy: ""`} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v lacks %q", what, err, words)
			}
		}
	}
	write := func() {
		t.Helper()
		if err := os.WriteFile(file, []byte("default:\n  use: []\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}

	inForce("there never was one", file, "")
	write()
	inForce("there is one", file, file)
	remove()
	gone("removed")
	gone("still")
	write()
	inForce("restored", file, file)
	remove()
	inForce("lifted", "", "")
	a := inForce("and none since", file, "")
	write()
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	remove()
	gone("read at a reload, and removed")

	// Nothing of it is known while the store is away.
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := start(file); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("a store that is away: %v", err)
	}
}
