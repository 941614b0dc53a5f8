package main

import (
	"context"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// keepAccounts is how long an answer of slurmctld's holds: as long as one
	// about groups.
	keepAccounts = time.Minute
	mostAccounts = 10_000
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

	mu   sync.Mutex
	kept map[uint32]keptAccounts
}

type keptAccounts struct {
	names []string
	until time.Time
}

func newAccounts(slurm accountants) *accounts {
	return &accounts{slurm: slurm, now: time.Now, kept: map[uint32]keptAccounts{}}
}

// of returns the accounts that a user has; nil where slurmctld lets everybody
// name any. What slurmctld does not say is not remembered.
func (a *accounts) of(ctx context.Context, person kb.Person) ([]string, error) {
	a.mu.Lock()
	has, found := a.kept[person.UID]
	a.mu.Unlock()
	if found && a.now().Before(has.until) {
		return has.names, nil
	}
	enforced, err := a.slurm.EnforcesAccounts(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	if enforced {
		if names, err = a.slurm.AccountsOf(ctx, person.Name, person.UID); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.kept) >= mostAccounts {
		clear(a.kept)
	}
	a.kept[person.UID] = keptAccounts{names, a.now().Add(keepAccounts)}
	return names, nil
}

// forget drops all that is remembered.
func (a *accounts) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.kept)
}
