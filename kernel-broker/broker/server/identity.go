// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/peercred"
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
	done, err := g.quotas.decode(ctx, caller.Address)
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
		g.quotas.failed.Take(caller.Address)
		return caller, nil, err
	}
	g.quotas.proven.Take(caller.Address)
	if caller.conn != nil {
		caller.conn.known()
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
	if !c.Known() { // an IPv6 network has one share of the record
		a.Holder = a.Host
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

// firstOpenPort is the lowest port that a program without privileges may use.
const firstOpenPort = 1024

// Caller is who is at the other end of a connection.
type Caller struct {
	credentials.CommonAuthInfo
	// Local: came through a unix socket; the kernel vouches for the rest.
	Local bool
	UID   uint32
	GID   uint32
	PID   int32
	// Address of a caller from the network.
	Address string
	// PrivilegedPort: dialled from a port that only root may use there.
	PrivilegedPort bool
	// Verified: MUNGE has verified UID and GID, of a caller from the
	// network. Claimed: they are what a refused credential says. Host
	// is where the credential says to have been made.
	Verified, Claimed bool
	Host              netip.Addr
	// Encrypted: through TLS.
	Encrypted bool
	// Node is who the caller has proven to be, by a certificate; the zero value
	// for those who showed none.
	Node mtls.Peer

	// decoded: munged was asked about the call's credential.
	decoded bool
	conn    *accountedConn // nil in tests of methods
}

// Known reports whether it is proven which user calls.
func (c Caller) Known() bool { return c.Local || c.Verified }

// AuthType implements credentials.AuthInfo.
func (Caller) AuthType() string { return "peer" }

// String says in an error or a log who it was.
func (c Caller) String() string {
	if c.Local {
		return fmt.Sprintf("uid %d (pid %d)", c.UID, c.PID)
	}
	if c.Verified {
		return fmt.Sprintf("uid %d (MUNGE, from %s)", c.UID, c.Address)
	}
	if !c.Node.Name.IsZero() {
		return fmt.Sprintf("node %s (%s)", c.Node.Name.Name, c.Address)
	}
	return c.Address
}

// CallerOf returns who made the call that ctx belongs to. Without one, as in a
// test that calls a method directly, it is a remote nobody.
func CallerOf(ctx context.Context) Caller {
	if caller, ok := ctx.Value(callerKey{}).(Caller); ok {
		return caller
	}
	if p, ok := peer.FromContext(ctx); ok {
		if caller, ok := p.AuthInfo.(Caller); ok {
			return caller
		}
	}
	return Caller{Address: "unknown"}
}

// peerCredentials finds out who calls: by the kernel on the local socket, by TLS
// over the network where it is on. So one server may serve both.
type peerCredentials struct {
	credentials.TransportCredentials // for what only clients ask
	network                          *network
	memory                           *memory
	isExempt                         func(Caller) bool
}

// ServerHandshake implements credentials.TransportCredentials.
func (c peerCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, caller, err := c.identify(raw)
	if err != nil {
		return nil, nil, err
	}
	// Where TLS is off nodes cannot be told from others.
	stranger := c.network != nil && !caller.Local && caller.Node.Name.IsZero()
	caller.conn = c.memory.account(conn, raw, caller.holder(), stranger, c.isExempt(caller))
	return caller.conn, caller, nil
}

func (c peerCredentials) identify(conn net.Conn) (net.Conn, Caller, error) {
	caller := Caller{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	local, ok := unlimited(conn).(*net.UnixConn)
	if !ok {
		caller.Address = conn.RemoteAddr().String()
		if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			caller.PrivilegedPort = tcp.Port > 0 && tcp.Port < firstOpenPort
		}
		if c.network != nil {
			return c.network.handshake(conn, caller)
		}
		return conn, caller, nil
	}
	ucred, err := peercred.Of(local)
	if err != nil {
		return nil, caller, fmt.Errorf("credentials of a local caller: %w", err)
	}
	caller.Local, caller.UID, caller.GID, caller.PID = true, ucred.Uid, ucred.Gid, ucred.Pid
	caller.SecurityLevel = credentials.PrivacyAndIntegrity
	return conn, caller, nil
}

// Clone implements credentials.TransportCredentials. That of the embedded value
// would let everyone in.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }
