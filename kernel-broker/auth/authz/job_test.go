// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/nss"
)

// While the name service is away, getent ends as for an unknown user. A job whose
// user Slurm knows waits then, and is authorized when the service is back.
func TestJobWaitsForTheNameService(t *testing.T) {
	dir := t.TempDir()
	program := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program("getent", "exit 2")
	program("id", `printf 'ocean\0'`)
	t.Setenv("PATH", dir)
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte("profiles:\n  mitgcm:\n    use:\n      - groups: [ocean]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	directory := nss.New()
	a, err := authz.New(authz.Options{File: file, Users: directory, Log: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	job, ref := kb.SlurmJob{ID: 7, Reference: "7", User: "alice", UID: 20001}, kb.Ref{Profile: "mitgcm"}
	for range 2 {
		err = a.AuthorizeJob(t.Context(), job, ref)
		var later *kb.RetryableError
		if !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrDenied) || !errors.As(err, &later) {
			t.Errorf("the name service is away: %v", err)
		}
	}
	if n := strings.Count(logs.String(), "waits for the name service"); n != 1 {
		t.Errorf("the log says it %d times: %s", n, logs.String())
	}
	for _, name := range []string{"", "20001"} {
		job.User = name
		if err := a.AuthorizeJob(t.Context(), job, ref); !errors.Is(err, kb.ErrDenied) {
			t.Errorf("a user without a name in Slurm (%q): %v", name, err)
		}
	}
	job.User = "alice"
	program("getent", `echo "alice:x:20001:20001::/home/alice:/bin/sh"`)
	directory.Forget()
	if err := a.AuthorizeJob(t.Context(), job, ref); err != nil {
		t.Errorf("the name service is back: %v", err)
	}
}

// Whether a job is profiled hangs on its account and partition as slurmctld has them.
func TestJobIsProfiledByItsAccount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("default:\n  profile:\n    - accounts: [climate]\n      partitions: [main]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	account, unknown := "climate", error(nil)
	a, err := authz.New(authz.Options{File: file, Log: slog.New(slog.DiscardHandler),
		JobAccount: func(context.Context, uint32) (string, error) { return account, unknown }})
	if err != nil {
		t.Fatal(err)
	}
	job, ref := kb.SlurmJob{ID: 7, Reference: "7", UID: 20001, Partition: "main"}, kb.Ref{Profile: kb.StockProfile}
	if err := a.AuthorizeProfiling(t.Context(), job, ref); err != nil {
		t.Error(err)
	}
	if account = "ice"; !errors.Is(a.AuthorizeProfiling(t.Context(), job, ref), kb.ErrDenied) {
		t.Error("another account is allowed")
	}
	if err := a.AuthorizeJob(t.Context(), job, ref); err != nil {
		t.Errorf("it may run all the same: %v", err)
	}
	if unknown = kb.ErrUnavailable; !errors.Is(a.AuthorizeProfiling(t.Context(), job, ref), kb.ErrUnavailable) {
		t.Error("an account that is not known is allowed")
	}
}
