// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// fakeAccounts is a slurmctld that is asked for accounts.
type fakeAccounts struct {
	enforced bool
	names    []string
	err      error
	asked    int
	during   func() // a question
}

func (b *fakeAccounts) EnforcesAccounts(context.Context) (bool, error) { return b.enforced, b.err }

func (b *fakeAccounts) AccountsOf(context.Context, string, uint32) ([]string, error) {
	b.asked++
	if b.during != nil {
		b.during()
	}
	return b.names, b.err
}

func TestAccountsAreKeptForAMinute(t *testing.T) {
	b := &fakeAccounts{enforced: true, names: []string{"ocean"}}
	a, now := NewAccountCache(b), time.Now()
	a.Now = func() time.Time { return now }
	bob := kb.User{UID: 20002, Name: "bob"}
	check := func(what string, asked int, want []string) {
		t.Helper()
		got, err := a.Of(t.Context(), bob)
		if err != nil || !slices.Equal(got, want) || (got == nil) != (want == nil) || b.asked != asked {
			t.Errorf("%s: %q, %v, asked %d times; want %q and %d", what, got, err, b.asked, want, asked)
		}
	}
	check("first", 1, []string{"ocean"})
	b.names = []string{}
	check("kept", 1, []string{"ocean"})
	if got, err := a.Of(t.Context(), kb.User{UID: 20003, Name: "carol"}); err != nil || len(got) != 0 {
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

// Forget drops the answers of questions that are under way, too.
func TestAccountsUnderWayAreForgotten(t *testing.T) {
	b := &fakeAccounts{enforced: true, names: []string{"ocean"}}
	a := NewAccountCache(b)
	b.during = a.Forget
	for asked := 1; asked <= 2; asked++ {
		if _, err := a.Of(t.Context(), kb.User{UID: 7, Name: "x"}); err != nil || b.asked != asked {
			t.Errorf("asked %d times, %v", b.asked, err)
		}
		b.during = nil
	}
}

// A failure of slurmctld is returned, and not kept.
func TestAccountsFailureIsNotKept(t *testing.T) {
	b := &fakeAccounts{err: kb.ErrUnavailable}
	a := NewAccountCache(b)
	for range 2 {
		if got, err := a.Of(t.Context(), kb.User{UID: 7, Name: "x"}); !errors.Is(err, kb.ErrUnavailable) || got != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	b.err, b.enforced = nil, true
	if _, err := a.Of(t.Context(), kb.User{UID: 7, Name: "x"}); err != nil || b.asked != 1 {
		t.Errorf("asked %d times, %v", b.asked, err)
	}
}

// silentAccounts is a slurmctld that is away, for which scontrol waits.
type silentAccounts struct{ fakeAccounts }

func (m *silentAccounts) EnforcesAccounts(ctx context.Context) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// A caller waits for slurmctld for less time than its commands do.
func TestAccountsHaveATimeLimit(t *testing.T) {
	a := NewAccountCache(&silentAccounts{})
	a.limit = time.Millisecond
	got, err := a.Of(t.Context(), kb.User{UID: 7, Name: "x"})
	if !errors.Is(err, kb.ErrUnavailable) || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// blockingAccounts is a slurmctld that answers when the test lets it, and counts
// the questions at a time.
type blockingAccounts struct {
	mu        sync.Mutex
	now, most int
	asked     map[uint32]int
	proceed   chan struct{}
	came      chan struct{}
}

func (b *blockingAccounts) EnforcesAccounts(context.Context) (bool, error) { return true, nil }

func (b *blockingAccounts) AccountsOf(_ context.Context, _ string, uid uint32) ([]string, error) {
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

// However many users are asked for, slurmctld is asked for two at a time, and for
// none of them twice.
func TestAccountsAtATime(t *testing.T) {
	const users, times = 40, 5
	b := &blockingAccounts{asked: map[uint32]int{}, proceed: make(chan struct{}), came: make(chan struct{}, users+1)}
	a, now := NewAccountCache(b), time.Now()
	a.limit, a.Now = time.Hour, func() time.Time { return now }
	var group sync.WaitGroup
	for i := range users * times {
		group.Go(func() {
			got, err := a.Of(t.Context(), kb.User{UID: uint32(i % users), Name: "x"})
			if err != nil || len(got) != 1 {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for range accountsAtATime {
		<-b.came
	}
	// A caller that does not wait for its turn gets an error.
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if got, err := a.Of(ctx, kb.User{UID: users, Name: "x"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q, %v", got, err)
	}
	close(b.proceed)
	group.Wait()
	// The lookup goes on without it, and answers the next caller.
	if _, err := a.Of(t.Context(), kb.User{UID: users, Name: "x"}); err != nil {
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
