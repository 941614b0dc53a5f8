// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/nss"
)

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
