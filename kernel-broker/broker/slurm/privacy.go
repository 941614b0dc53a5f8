// SPDX-License-Identifier: Apache-2.0

package slurm

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

// privacySource is the part of Slurm that knows PrivateData.
type privacySource interface {
	PrivateJobs(ctx context.Context) (bool, error)
	Operates(ctx context.Context, user string, uid uint32) (bool, error)
}

// Privacy knows to whom Slurm shows the jobs of others. While slurmctld does not
// answer its last answer holds; before the first one nobody is shown them.
type Privacy struct {
	slurm privacySource
	named func(ctx context.Context, uid uint32) (kb.User, error)
	turns *semaphore.Weighted

	private   cache.Cache[struct{}, bool]
	operators cache.Cache[uint32, bool]
}

// NewPrivacy asks slurm, and named for the names of users.
func NewPrivacy(slurm privacySource, named func(ctx context.Context, uid uint32) (kb.User, error)) *Privacy {
	return &Privacy{slurm: slurm, named: named, turns: semaphore.NewWeighted(accountsAtATime)}
}

// ShowsOthers reports whether Slurm shows a user the jobs of others.
func (p *Privacy) ShowsOthers(ctx context.Context, uid uint32) bool {
	private, err := p.private.GetOrLast(ctx, struct{}{}, keepSilence, func(ctx context.Context) (bool, time.Duration, error) {
		return p.ask(ctx, p.slurm.PrivateJobs)
	})
	if err == nil && !private {
		return true
	}
	operator, err := p.operators.GetOrLast(ctx, uid, keepSilence, func(ctx context.Context) (bool, time.Duration, error) {
		return p.ask(ctx, func(ctx context.Context) (bool, error) {
			user, err := p.named(ctx, uid)
			if err != nil {
				return false, err
			}
			return p.slurm.Operates(ctx, user.Name, uid)
		})
	})
	return err == nil && operator
}

// ask asks slurmctld one question when it is its turn.
func (p *Privacy) ask(ctx context.Context, question func(context.Context) (bool, error)) (bool, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, askAccounts)
	defer cancel()
	if err := p.turns.Acquire(ctx, 1); err != nil {
		return false, 0, err
	}
	defer p.turns.Release(1)
	answer, err := question(ctx)
	return answer, keepPrivacy, err
}

// Forget makes slurmctld be asked again; its last answers hold until it answers.
func (p *Privacy) Forget() {
	p.private.Forget()
	p.operators.Forget()
}
