package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// keepAccounts is how long an answer of slurmctld's holds: as long as one
	// about groups.
	keepAccounts = time.Minute
	mostAccounts = 10_000
	// askAccounts bounds a question, of which a call asks two, so that it ends within the
	// ten seconds that kernelctl waits while slurmctld is away.
	askAccounts = 2 * time.Second
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

	mu   sync.Mutex
	kept map[uint32]keptAccounts
	// forgot counts how often answers were dropped: one that was under way then
	// is not kept.
	forgot uint64
}

type keptAccounts struct {
	names []string
	until time.Time
}

func newAccounts(slurm accountants) *accounts {
	return &accounts{slurm: slurm, now: time.Now, limit: askAccounts, kept: map[uint32]keptAccounts{}}
}

// of returns the accounts that a user has; nil where slurmctld lets everybody
// name any. What slurmctld does not say is not remembered.
func (a *accounts) of(ctx context.Context, person kb.Person) ([]string, error) {
	a.mu.Lock()
	has, found := a.kept[person.UID]
	forgot := a.forgot
	a.mu.Unlock()
	if found && a.now().Before(has.until) {
		return has.names, nil
	}
	names, err := a.ask(ctx, person)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.forgot != forgot {
		return names, nil
	}
	if len(a.kept) >= mostAccounts {
		clear(a.kept)
	}
	a.kept[person.UID] = keptAccounts{names, a.now().Add(keepAccounts)}
	return names, nil
}

func (a *accounts) ask(ctx context.Context, person kb.Person) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, fmt.Errorf("slurmctld did not say within %v: %w", a.limit, kb.ErrUnavailable))
	defer cancel()
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
