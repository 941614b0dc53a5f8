// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
)

// identify finds out whose call it is. Whoever came through the socket is known
// by it: that cannot be stolen or replayed, and hangs on no daemon, which a
// job's prolog must not. Whoever came over the network is known by the
// credential in the call's metadata, if there is one. The caller is returned
// with an error, too, as far as it seems to be known.
//
// What is proven counts once binds has been given the call's first message; nil
// stands for nothing to compare. Of the doubt, counted is to be called for a
// caller who is proven and has a share left: until then he costs his address one
// of those credentials that it may send in vain. After it, or without it, seen
// is to be called, soon. The error is kb.RetryableError for one that was not
// looked at.
func (g *gate) identify(ctx context.Context, method string) (caller Caller, binds func(any) error, _ doubt, err error) {
	caller = CallerOf(ctx)
	values := metadata.ValueFromIncomingContext(ctx, credential.Header)
	if caller.Local || !needsUser(rules[method].may) || len(values) == 0 {
		return caller, nil, noDoubt, nil
	}
	if len(values) > 1 {
		return caller, nil, noDoubt, fmt.Errorf("%d credentials came with one call: %w", len(values), kb.ErrUnauthenticated)
	}
	if g.proof == nil {
		return caller, nil, noDoubt, fmt.Errorf("this broker knows nobody over the network (munge.socket in broker.yaml): %w", kb.ErrUnauthenticated)
	}
	asked, err := g.shares.strain.question(ctx, caller)
	if err != nil {
		return caller, nil, noDoubt, err
	}
	isProven := false
	defer func() {
		if !isProven {
			asked.seen()
		}
	}()
	proven, err := g.proof.Verify(ctx, values[0], method)
	if proven != nil {
		caller.Vouched, caller.UID, caller.GID, caller.Host = err == nil, proven.UID, proven.GID, proven.Host
		caller.Seems = err != nil
	}
	if err != nil {
		return caller, nil, noDoubt, err
	}
	binds = func(message any) error {
		m, ok := message.(proto.Message)
		if !ok {
			return fmt.Errorf("message %T cannot be compared with what was vouched for: %w", message, kb.ErrUnauthenticated)
		}
		return proven.Binds(m)
	}
	isProven = true
	return caller, binds, asked, nil
}

// needsUser reports whether it matters which user calls.
func needsUser(may audience) bool {
	return may == users || may == fetchers || may == administrators || may == slurm
}

type callerKey struct{}

// withCaller lets CallerOf return whom the call was found to be from.
func withCaller(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// asker is the caller as the guard wants it.
func (c Caller) asker() authz.Asker {
	a := authz.Asker{UID: c.UID, Place: authz.Place{Local: c.Local}, From: c.origin(), Holder: c.holder()}
	if !c.Local {
		a.Host, a.Network = c.host()
	}
	switch {
	case c.Local:
		a.By = "socket"
	case c.Vouched || c.Seems:
		a.By = "munge"
	case !c.Node.Name.IsZero():
		a.By = "certificate"
	}
	if address, err := netip.ParseAddrPort(c.Address); err == nil {
		a.Place.Address = address.Addr().Unmap()
	}
	return a
}

// origin says where a caller came from.
func (c Caller) origin() string {
	switch {
	case c.Local:
		return fmt.Sprintf("local, pid %d", c.PID)
	case c.Seems:
		return fmt.Sprintf("%s, credential of uid %d made at %s", c.Address, c.UID, c.Host)
	case c.Host.IsValid():
		return fmt.Sprintf("%s, credential made at %s", c.Address, c.Host)
	}
	return c.Address
}
