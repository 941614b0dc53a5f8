// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

const (
	// keepPrivacy is how long slurmctld's word on PrivateData holds, and on who
	// is an operator: as long as one about accounts.
	keepPrivacy = time.Minute
	mostLevels  = 10_000
)

// keepsPrivate is what is asked of slurmctld.
type keepsPrivate interface {
	PrivateJobs(ctx context.Context) (bool, error)
	Operates(ctx context.Context, user string, uid uint32) (bool, error)
}

// privacy knows to whom Slurm shows the jobs of others. What slurmctld does not
// say now, since it is away, is what it said last; before its first word
// nobody is shown them.
type privacy struct {
	slurm keepsPrivate
	named func(ctx context.Context, uid uint32) (kb.User, error)
	now   func() time.Time
	turns *limit.Turns
	// settings and levels are the questions under way.
	settings limit.Flights[struct{}, bool]
	levels   limit.Flights[uint32, bool]

	mu      sync.Mutex
	private remembered
	operate map[uint32]remembered
}

// remembered is a word of slurmctld's and how long it holds.
type remembered struct {
	is    bool
	until time.Time
}

func newPrivacy(slurm keepsPrivate, named func(ctx context.Context, uid uint32) (kb.User, error)) *privacy {
	return &privacy{slurm: slurm, named: named, now: time.Now, turns: limit.NewTurns(accountsAtATime, accountsAtATime),
		private: remembered{is: true}, operate: map[uint32]remembered{}}
}

// showsOthers reports whether Slurm shows a user the jobs of others.
func (p *privacy) showsOthers(ctx context.Context, uid uint32) bool {
	return !p.isPrivate(ctx) || p.operates(ctx, uid)
}

func (p *privacy) isPrivate(ctx context.Context) bool {
	p.mu.Lock()
	last := p.private
	p.mu.Unlock()
	if p.now().Before(last.until) {
		return last.is
	}
	is, err := p.settings.Do(ctx, struct{}{}, func(ctx context.Context) (bool, error) {
		return p.ask(ctx, p.slurm.PrivateJobs)
	})
	next := p.answer(last, is, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.private = next
	return next.is
}

func (p *privacy) operates(ctx context.Context, uid uint32) bool {
	p.mu.Lock()
	last := p.operate[uid]
	p.mu.Unlock()
	if p.now().Before(last.until) {
		return last.is
	}
	is, err := p.levels.Do(ctx, uid, func(ctx context.Context) (bool, error) {
		return p.ask(ctx, func(ctx context.Context) (bool, error) {
			person, err := p.named(ctx, uid)
			if err != nil {
				return false, err
			}
			return p.slurm.Operates(ctx, person.Name, uid)
		})
	})
	next := p.answer(last, is, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.operate) >= mostLevels {
		clear(p.operate)
	}
	p.operate[uid] = next
	return next.is
}

// answer is what holds after a question.
func (p *privacy) answer(last remembered, is bool, err error) remembered {
	if err != nil {
		return remembered{last.is, p.now().Add(keepSilence)}
	}
	return remembered{is, p.now().Add(keepPrivacy)}
}

func (p *privacy) ask(ctx context.Context, question func(context.Context) (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askAccounts)
	defer cancel()
	free, err := p.turns.Take(ctx, "users")
	if err != nil {
		return false, err
	}
	defer free()
	return question(ctx)
}

// forget has slurmctld asked again; its last words stay until it answers.
func (p *privacy) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.private.until = time.Time{}
	clear(p.operate)
}
