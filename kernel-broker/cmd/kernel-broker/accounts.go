// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

const (
	// keepAccounts is how long an answer of slurmctld's holds: as long as one
	// about groups.
	keepAccounts = time.Minute
	mostAccounts = 10_000
	// askAccounts bounds a question, of which a call asks two, so that it ends within the
	// ten seconds that kernelctl waits while slurmctld is away.
	askAccounts = 2 * time.Second
	// accountsAtATime questions are under way at most, each of which is one process
	// on slurmctld's host; the others wait within their time.
	accountsAtATime = 2
)

// accountants knows accounts; slurmctld does.
type accountants interface {
	EnforcesAccounts(ctx context.Context) (bool, error)
	AccountsOf(ctx context.Context, user string, uid uint32) ([]string, error)
}

// accounts remembers what slurmctld says of users' accounts, for the early word
// at submit: each question is two processes. No job is judged by it.
type accounts struct {
	slurm accountants
	now   func() time.Time
	limit time.Duration
	turns *limit.Turns
	// flights are the questions under way.
	flights limit.Flights[accountsOf, []string]

	mu   sync.Mutex
	kept map[uint32]keptAccounts
	// forgot counts how often answers were dropped: one that was under way then
	// is not kept.
	forgot uint64
}

// accountsOf is whose accounts are asked for, and when all that was remembered
// was dropped last: what is from before is nobody's who comes after.
type accountsOf struct {
	uid    uint32
	forgot uint64
}

type keptAccounts struct {
	names []string
	until time.Time
}

func newAccounts(slurm accountants) *accounts {
	return &accounts{slurm: slurm, now: time.Now, limit: askAccounts, turns: limit.NewTurns(accountsAtATime, accountsAtATime), kept: map[uint32]keptAccounts{}}
}

// of returns the accounts that a user has; nil where slurmctld lets everybody
// name any. What slurmctld does not say is not remembered.
func (a *accounts) of(ctx context.Context, person kb.User) ([]string, error) {
	names, forgot, found := a.look(person.UID)
	if found {
		return names, nil
	}
	q := accountsOf{person.UID, forgot}
	return a.flights.Do(ctx, q, func(ctx context.Context) ([]string, error) {
		if names, _, found := a.look(q.uid); found {
			return names, nil // it came in the meantime
		}
		names, err := a.ask(ctx, person)
		if err == nil {
			a.keep(q, names)
		}
		return names, err
	})
}

// look returns what is remembered.
func (a *accounts) look(uid uint32) (names []string, forgot uint64, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, found := a.kept[uid]
	return kept.names, a.forgot, found && a.now().Before(kept.until)
}

func (a *accounts) keep(q accountsOf, names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.forgot != q.forgot {
		return
	}
	if len(a.kept) >= mostAccounts {
		clear(a.kept)
	}
	a.kept[q.uid] = keptAccounts{names, a.now().Add(keepAccounts)}
}

func (a *accounts) ask(ctx context.Context, person kb.User) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, fmt.Errorf("slurmctld did not say within %v: %w", a.limit, kb.ErrUnavailable))
	defer cancel()
	free, err := a.turns.Take(ctx, "users")
	if err != nil {
		return nil, context.Cause(ctx)
	}
	defer free()
	enforced, err := a.slurm.EnforcesAccounts(ctx)
	var names []string
	if err == nil && enforced {
		names, err = a.slurm.AccountsOf(ctx, person.Name, person.UID)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	return names, nil
}

// forget drops all that is remembered.
func (a *accounts) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.kept)
	a.forgot++
}
