// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
)

// sight tells whose jobs a caller sees. Slurm has the word on that
// (PrivateData=jobs); administrators of the broker's and Slurm's hooks see all.
type sight struct {
	caller Caller
	all    func(ctx context.Context) bool
}

type sightKey struct{}

func (g *gate) withSight(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, sightKey{}, sight{caller, func(ctx context.Context) bool {
		if g.showsOthers == nil || g.door.open(slurm, caller) {
			return true
		}
		d, err := g.guard.Judge(ctx, caller.asker(), authz.Inspect, "", nil)
		return err == nil && d.Allowed || caller.Known() && g.showsOthers(ctx, caller.UID)
	}})
}

// sightOf is the sight of a call's caller. Without a gate in front of it, as in
// a test that calls a method directly, there is nothing to hide.
func sightOf(ctx context.Context) sight {
	if s, ok := ctx.Value(sightKey{}).(sight); ok {
		return s
	}
	return sight{CallerOf(ctx), func(context.Context) bool { return true }}
}

// whose is the one user whose jobs the caller sees; nil stands for everybody's.
func (s sight) whose(ctx context.Context) *uint32 {
	if s.all(ctx) {
		return nil
	}
	return &s.caller.UID
}

// hidden turns what a caller may not see into the same error as what is not
// there, which tells both why: that a job has no kernel is as private as that it
// has one.
func (s sight) hidden(ctx context.Context, what string, uid uint32, err error) error {
	if err != nil && !errors.Is(err, kb.ErrNotFound) {
		return err
	}
	if whose := s.whose(ctx); whose == nil || err == nil && *whose == uid {
		return err
	}
	return fmt.Errorf("%s: there is none, or it is not yours (slurm.conf has PrivateData=jobs: others' are for Slurm's operators and administrators): %w",
		what, kb.ErrNotFound)
}
