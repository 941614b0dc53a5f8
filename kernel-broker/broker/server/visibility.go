// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
)

// visibility decides whose jobs a caller sees, as Slurm does (PrivateData=jobs).
// The broker's administrators and Slurm's hooks see all jobs.
type visibility struct {
	caller Caller
	all    func(ctx context.Context) bool
}

type visibilityKey struct{}

func (g *interceptor) withVisibility(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, visibilityKey{}, visibility{caller, func(ctx context.Context) bool {
		if g.showsOthers == nil || g.access.permits(slurm, caller) {
			return true
		}
		d, err := g.authorizer.Authorize(ctx, caller.subject(), authz.Inspect, "", nil)
		return err == nil && d.Allowed || caller.Known() && g.showsOthers(ctx, caller.UID)
	}})
}

// visibilityOf is that of a call's caller. A test that calls a method directly has
// none and sees all.
func visibilityOf(ctx context.Context) visibility {
	if s, ok := ctx.Value(visibilityKey{}).(visibility); ok {
		return s
	}
	return visibility{CallerOf(ctx), func(context.Context) bool { return true }}
}

// whose is the one user whose jobs the caller sees; nil stands for everybody's.
func (v visibility) whose(ctx context.Context) *uint32 {
	if v.all(ctx) {
		return nil
	}
	return &v.caller.UID
}

// hidden turns what a caller may not see into the same error as what is not
// there, which tells both why: that a job has no kernel is as private as that it
// has one.
func (v visibility) hidden(ctx context.Context, what string, uid uint32, err error) error {
	if err != nil && !errors.Is(err, kb.ErrNotFound) {
		return err
	}
	if whose := v.whose(ctx); whose == nil || err == nil && *whose == uid {
		return err
	}
	return fmt.Errorf("%s: there is none, or it is not yours (slurm.conf has PrivateData=jobs: others' are for Slurm's operators and administrators): %w",
		what, kb.ErrNotFound)
}
