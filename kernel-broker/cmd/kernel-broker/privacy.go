// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
)

// keepPrivacy is how long slurmctld's answers on PrivateData and on operators are
// kept.
const keepPrivacy = time.Minute

// keepsPrivate is the part of Slurm that knows PrivateData.
type keepsPrivate interface {
	PrivateJobs(ctx context.Context) (bool, error)
	Operates(ctx context.Context, user string, uid uint32) (bool, error)
}

// privacy knows to whom Slurm shows the jobs of others. While slurmctld does not
// answer its last answer holds; before the first one nobody is shown them.
type privacy struct {
	slurm keepsPrivate
	named func(ctx context.Context, uid uint32) (kb.User, error)
	turns *semaphore.Weighted

	private   cache.Cache[struct{}, bool]
	operators cache.Cache[uint32, bool]
}

func newPrivacy(slurm keepsPrivate, named func(ctx context.Context, uid uint32) (kb.User, error)) *privacy {
	return &privacy{slurm: slurm, named: named, turns: semaphore.NewWeighted(accountsAtATime)}
}

// showsOthers reports whether Slurm shows a user the jobs of others.
func (p *privacy) showsOthers(ctx context.Context, uid uint32) bool {
	private, err := cached(ctx, p.turns, &p.private, struct{}{}, true, p.slurm.PrivateJobs)
	if err == nil && !private {
		return true
	}
	operator, err := cached(ctx, p.turns, &p.operators, uid, false, func(ctx context.Context) (bool, error) {
		user, err := p.named(ctx, uid)
		if err != nil {
			return false, err
		}
		return p.slurm.Operates(ctx, user.Name, uid)
	})
	return err == nil && operator
}

// cached returns an answer of slurmctld. Without one it returns the last answer,
// or first before there was any.
func cached[K comparable](ctx context.Context, turns *semaphore.Weighted, c *cache.Cache[K, bool], key K, first bool, ask func(context.Context) (bool, error)) (bool, error) {
	return c.Get(ctx, key, func(ctx context.Context) (bool, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, askAccounts)
		defer cancel()
		is, err := false, turns.Acquire(ctx, 1)
		if err == nil {
			defer turns.Release(1)
			is, err = ask(ctx)
		}
		if err == nil {
			return is, keepPrivacy, nil
		}
		if last, known := c.Last(key); known {
			return last, keepSilence, nil
		}
		return first, keepSilence, nil
	})
}

// forget makes slurmctld be asked again; its last answers hold until it answers.
func (p *privacy) forget() {
	p.private.Forget()
	p.operators.Forget()
}
