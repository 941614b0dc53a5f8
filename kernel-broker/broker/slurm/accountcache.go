// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
)

const (
	// keepAccounts is how long an answer of slurmctld is kept, like one on groups.
	keepAccounts = time.Minute
	// askAccounts limits a question to slurmctld. A call asks two, within the ten
	// seconds that kernelctl waits.
	askAccounts = 2 * time.Second
	// accountsAtATime limits the questions under way: each runs a process on
	// slurmctld's host.
	accountsAtATime = 2
)

// accountSource is the part of Slurm that knows accounts.
type accountSource interface {
	EnforcesAccounts(ctx context.Context) (bool, error)
	AccountsOf(ctx context.Context, user string, uid uint32) ([]string, error)
}

// AccountCache caches the users' accounts for the early answer at submit. No job
// is authorized by it.
type AccountCache struct {
	cache.Cache[uint32, []string]
	slurm accountSource
	limit time.Duration
	turns *semaphore.Weighted
}

// NewAccountCache asks slurm.
func NewAccountCache(slurm accountSource) *AccountCache {
	return &AccountCache{slurm: slurm, limit: askAccounts, turns: semaphore.NewWeighted(accountsAtATime)}
}

// Of returns the accounts of a user; nil where slurmctld does not enforce them.
func (a *AccountCache) Of(ctx context.Context, user kb.User) ([]string, error) {
	return a.Get(ctx, user.UID, func(ctx context.Context) ([]string, time.Duration, error) {
		names, err := a.ask(ctx, user)
		if err != nil {
			return nil, 0, err
		}
		return names, keepAccounts, nil
	})
}

func (a *AccountCache) ask(ctx context.Context, user kb.User) (names []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, fmt.Errorf("slurmctld did not answer within %v: %w", a.limit, kb.ErrUnavailable))
	defer cancel()
	if a.turns.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	defer a.turns.Release(1)
	enforced, err := a.slurm.EnforcesAccounts(ctx)
	if err == nil && enforced {
		names, err = a.slurm.AccountsOf(ctx, user.Name, user.UID)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	return names, nil
}
