// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/nss"
)

// The names in a policy that nothing and nobody has are in the log at a reload, and in the health as long as it is so.
func TestNamesThatAreNotThere(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "getent"), []byte("#!/bin/sh\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	file := filepath.Join(dir, "policy.yaml")
	text := "profiles:\n  mitgmc:\n    use:\n      - groups: [ocaen]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	registered := []string{"mitgcm"}
	r := &authorization{directory: nss.New(), registered: func(context.Context) ([]string, error) { return registered, nil }}
	var err error
	if r.Authorizer, err = authz.New(authz.Options{File: file, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	r.look(t.Context(), slog.New(slog.NewTextHandler(&logs, nil)))
	profile, group := `:2: no profile "mitgmc" is registered, so its rules restrict no kernel; did you mean "mitgcm"?`, `:4: this host knows no group "ocaen" (getent group ocaen)`
	if got := r.component(t.Context(), r.Health); !got.Healthy || got.Warning != file+profile+"; "+file+group {
		t.Errorf("%+v", got)
	}
	if got := logs.String(); strings.Count(got, "level=WARN") != 2 || !strings.Contains(got, "mitgmc") || !strings.Contains(got, "ocaen") {
		t.Errorf("%s", got)
	}
	registered = append(registered, "mitgmc")
	if got := r.component(t.Context(), r.Health); got.Warning != file+group {
		t.Errorf("registered: %+v", got)
	}
	many := []string{"a", "b", "c", "d", "e", "f"}
	r.unknown.Store(&many)
	if got := r.component(t.Context(), r.Health); got.Warning != "a; b; c; d; and 2 more (kernelctl policy check FILE)" {
		t.Errorf("%+v", got)
	}
}

// A job is authorized while hundreds of users' calls wait for the host's name
// service.
func TestJobUnderLoad(t *testing.T) {
	dir := t.TempDir()
	program := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	asked := filepath.Join(dir, "asked")
	program("getent", `case $2 in 20001) echo "alice:x:20001:20001::/home/alice:/bin/sh"; exit;; esac
: > `+asked+`
exec /bin/sleep 60`)
	program("id", `printf 'ocean\0'`)
	t.Setenv("PATH", dir)
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte("profiles:\n  mitgcm:\n    use:\n      - groups: [ocean]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &authorization{directory: nss.New()}
	var err error
	if r.Authorizer, err = authz.New(authz.Options{File: file, Users: r.directory, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	// All of them wait before the job comes.
	var started sync.WaitGroup
	for i := range 200 {
		started.Add(1)
		callers.Go(func() {
			started.Done()
			if _, err := r.Authorize(ctx, authz.Caller{UID: uint32(100_000 + i), By: "munge"}, authz.Use, "mitgcm", nil); !errors.Is(err, kb.ErrUnavailable) {
				t.Errorf("a user: %v", err)
			}
		})
	}
	started.Wait()
	for {
		if _, err := os.Stat(asked); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := r.authorizeJob(t.Context(), kb.SlurmJob{ID: 7, Reference: "7", User: "alice", UID: 20001}, kb.Ref{Profile: "mitgcm"}); err != nil {
		t.Errorf("the job: %v", err)
	}
}
