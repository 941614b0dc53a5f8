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

// identify authenticates the caller. A local caller is known by its socket, which
// needs no daemon: a job's prolog must not depend on one. A caller over the
// network is known by the credential in the call's metadata, if there is one. The
// caller is returned with an error, too, as far as it seems to be known.
//
// The credential counts once binds accepted the call's first message; binds is
// nil without a credential. The error is a RetryableError for a credential that
// was not decoded.
func (g *interceptor) identify(ctx context.Context, method string) (caller Caller, binds func(any) error, err error) {
	caller = CallerOf(ctx)
	values := metadata.ValueFromIncomingContext(ctx, credential.Header)
	if caller.Local || !needsUser(rules[method].may) || len(values) == 0 {
		return caller, nil, nil
	}
	if len(values) > 1 {
		return caller, nil, fmt.Errorf("%d credentials came with one call: %w", len(values), kb.ErrUnauthenticated)
	}
	if g.verifier == nil {
		return caller, nil, fmt.Errorf("this broker authenticates no users over the network (munge.socket in broker.yaml): %w", kb.ErrUnauthenticated)
	}
	done, err := g.quotas.decode(ctx, hostOf(caller.Address))
	if err != nil {
		return caller, nil, err
	}
	defer done()
	caller.decoded = true
	verified, err := g.verifier.Verify(ctx, values[0], method)
	if verified != nil {
		caller.Verified, caller.UID, caller.GID, caller.Host = err == nil, verified.UID, verified.GID, verified.Host
		caller.Claimed = err != nil
	}
	if err != nil {
		g.quotas.failed.Take(hostOf(caller.Address))
		return caller, nil, err
	}
	return caller, func(message any) error {
		m, ok := message.(proto.Message)
		if !ok {
			return fmt.Errorf("message %T cannot be compared with the credential's: %w", message, kb.ErrUnauthenticated)
		}
		return verified.Binds(m)
	}, nil
}

// needsUser reports whether methods of an audience authenticate users.
func needsUser(may audience) bool {
	return may == users || may == fetchers || may == administrators || may == slurm
}

type callerKey struct{}

// withCaller makes CallerOf return the authenticated caller.
func withCaller(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// subject is the caller as the authorizer wants it.
func (c Caller) subject() authz.Caller {
	a := authz.Caller{UID: c.UID, Place: authz.Place{Local: c.Local}, From: c.origin(), Holder: c.holder()}
	if !c.Local {
		a.Host = c.host()
	}
	switch {
	case c.Local:
		a.By = "socket"
	case c.Verified || c.Claimed:
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
	case c.Claimed:
		return fmt.Sprintf("%s, credential of uid %d made at %s", c.Address, c.UID, c.Host)
	case c.Host.IsValid():
		return fmt.Sprintf("%s, credential made at %s", c.Address, c.Host)
	}
	return c.Address
}
