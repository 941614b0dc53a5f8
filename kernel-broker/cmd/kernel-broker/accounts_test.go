// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// book is a slurmctld that is asked for accounts.
type book struct {
	enforced bool
	names    []string
	err      error
	asked    int
	during   func() // a question
}

func (b *book) EnforcesAccounts(context.Context) (bool, error) { return b.enforced, b.err }

func (b *book) AccountsOf(context.Context, string, uint32) ([]string, error) {
	b.asked++
	if b.during != nil {
		b.during()
	}
	return b.names, b.err
}

func TestAccountsAreKeptForAMinute(t *testing.T) {
	b := &book{enforced: true, names: []string{"ocean"}}
	a, now := newAccounts(b), time.Now()
	a.Now = func() time.Time { return now }
	bob := kb.User{UID: 20002, Name: "bob"}
	check := func(what string, asked int, want []string) {
		t.Helper()
		got, err := a.of(t.Context(), bob)
		if err != nil || !slices.Equal(got, want) || (got == nil) != (want == nil) || b.asked != asked {
			t.Errorf("%s: %q, %v, asked %d times; want %q and %d", what, got, err, b.asked, want, asked)
		}
	}
	check("first", 1, []string{"ocean"})
	b.names = []string{}
	check("kept", 1, []string{"ocean"})
	if got, err := a.of(t.Context(), kb.User{UID: 20003, Name: "carol"}); err != nil || len(got) != 0 {
		t.Errorf("another user: %q, %v", got, err)
	}
	now = now.Add(keepAccounts)
	check("after a minute", 3, []string{})
	a.Forget()
	check("forgotten", 4, []string{})
	a.Forget()
	b.enforced = false
	check("not enforced", 4, nil)
}

// An answer that was under way when all were dropped is from before.
func TestAccountsUnderWayAreForgotten(t *testing.T) {
	b := &book{enforced: true, names: []string{"ocean"}}
	a := newAccounts(b)
	b.during = a.Forget
	for asked := 1; asked <= 2; asked++ {
		if _, err := a.of(t.Context(), kb.User{UID: 7, Name: "x"}); err != nil || b.asked != asked {
			t.Errorf("asked %d times, %v", b.asked, err)
		}
		b.during = nil
	}
}

// What slurmctld does not say is neither an answer nor remembered.
func TestAccountsThatNobodyTells(t *testing.T) {
	b := &book{err: kb.ErrUnavailable}
	a := newAccounts(b)
	for range 2 {
		if got, err := a.of(t.Context(), kb.User{UID: 7, Name: "x"}); !errors.Is(err, kb.ErrUnavailable) || got != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	b.err, b.enforced = nil, true
	if _, err := a.of(t.Context(), kb.User{UID: 7, Name: "x"}); err != nil || b.asked != 1 {
		t.Errorf("asked %d times, %v", b.asked, err)
	}
}

// mute is a slurmctld that is away, for which scontrol waits.
type mute struct{ book }

func (m *mute) EnforcesAccounts(ctx context.Context) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// Who asks does not wait for slurmctld as long as its commands do.
func TestAccountsAreNotWaitedFor(t *testing.T) {
	a := newAccounts(&mute{})
	a.limit = time.Millisecond
	got, err := a.of(t.Context(), kb.User{UID: 7, Name: "x"})
	if !errors.Is(err, kb.ErrUnavailable) || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}
