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

// A job has its kernel while the host's name service keeps those waiting who call
// the broker as hundreds of users.
func TestAJobBesideStrangers(t *testing.T) {
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
	r := &authorization{directory: nss.New(), log: slog.New(slog.DiscardHandler)}
	var err error
	if r.Authorizer, err = authz.New(authz.Options{File: file, Users: r.directory, Log: r.log}); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	defer strangers.Wait()
	defer leave()
	// In the order of a flood: all of them wait before the job comes.
	var here sync.WaitGroup
	for i := range 200 {
		here.Add(1)
		strangers.Go(func() {
			here.Done()
			if _, err := r.Authorize(ctx, authz.Caller{UID: uint32(100_000 + i), By: "munge"}, authz.Use, "mitgcm", nil); !errors.Is(err, kb.ErrUnavailable) {
				t.Errorf("a stranger: %v", err)
			}
		})
	}
	here.Wait()
	for {
		if _, err := os.Stat(asked); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := r.authorise(t.Context(), kb.SlurmJob{ID: 7, Reference: "7", User: "alice", UID: 20001}, kb.Ref{Profile: "mitgcm"}); err != nil {
		t.Errorf("the job: %v", err)
	}
}

// busy is a slurmctld that answers when the test lets it, and counts who is asked
// for at a time.
type busy struct {
	mu        sync.Mutex
	now, most int
	asked     map[uint32]int
	proceed   chan struct{}
	came      chan struct{}
}

func (b *busy) EnforcesAccounts(context.Context) (bool, error) { return true, nil }

func (b *busy) AccountsOf(_ context.Context, _ string, uid uint32) ([]string, error) {
	b.mu.Lock()
	b.asked[uid]++
	b.now++
	b.most = max(b.most, b.now)
	b.mu.Unlock()
	b.came <- struct{}{}
	<-b.proceed
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now--
	return []string{"ocean"}, nil
}

// Whoever asks for how many users, slurmctld is asked for two at a time, and for
// none of them twice.
func TestAccountsAtATime(t *testing.T) {
	const users, times = 40, 5
	b := &busy{asked: map[uint32]int{}, proceed: make(chan struct{}), came: make(chan struct{}, users+1)}
	a, now := newAccounts(b), time.Now()
	a.limit, a.Now = time.Hour, func() time.Time { return now }
	var group sync.WaitGroup
	for i := range users * times {
		group.Go(func() {
			got, err := a.of(t.Context(), kb.User{UID: uint32(i % users), Name: "x"})
			if err != nil || len(got) != 1 {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for range accountsAtATime {
		<-b.came
	}
	// Who does not wait for his turn gets no answer, which is none.
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if got, err := a.of(ctx, kb.User{UID: users, Name: "x"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q, %v", got, err)
	}
	close(b.proceed)
	group.Wait()
	// The lookup goes on without him, and has an answer for whoever asks next.
	if _, err := a.of(t.Context(), kb.User{UID: users, Name: "x"}); err != nil {
		t.Error(err)
	}
	if b.most > accountsAtATime || len(b.asked) != users+1 {
		t.Errorf("%d at a time, %d users were asked for", b.most, len(b.asked))
	}
	for uid, n := range b.asked {
		if n != 1 {
			t.Errorf("uid %d: asked %d times", uid, n)
		}
	}
}
