// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// TLS is how callers over the network prove who they are, and the broker to
// them. Users of services may come without a certificate; nodes may not.
type TLS struct {
	// Source is what the broker shows and whose certificates it believes.
	Source mtls.Source
	// Registry says which of them are void.
	Registry *pki.Registry
}

// network makes connections of those who come over TCP, and knows which node
// each belongs to, so that they can be cut.
type network struct {
	config *tls.Config
	accept func(mtls.Peer) error
	// authorizer may be nil: nothing is recorded then.
	authorizer *authz.Authorizer
	handshakes *handshakes
	log        *slog.Logger
	sampler    *limit.LogSampler

	mu   sync.Mutex
	open map[string]map[*nodeConn]struct{}
}

// network returns nil where TLS is off.
func (t *TLS) network(a *authz.Authorizer, l Limits, log *slog.Logger) *network {
	if t == nil {
		return nil
	}
	n := &network{accept: t.Registry.Accept, authorizer: a, handshakes: newHandshakes(l), log: log, sampler: limit.NewLogSampler(logRate),
		open: map[string]map[*nodeConn]struct{}{}}
	n.config = n.handshakes.config(mtls.ServerConfig(t.Source, t.Registry.Cluster(), t.Registry.Accept))
	t.Registry.OnVoid(n.cut)
	return n
}

// handshake authenticates a node. gRPC limits its time, which begins anew with each
// turn: what follows it has the rest.
func (n *network) handshake(raw net.Conn, caller Caller) (net.Conn, Caller, error) {
	bounded, done, err := n.handshakes.begin(raw)
	if err != nil { // the listener has logged it
		return nil, caller, fmt.Errorf("TLS with %s: %w", caller, err)
	}
	conn := tls.Server(bounded, n.config)
	err = conn.Handshake()
	done()
	var peer mtls.Peer
	if err == nil {
		peer, err = mtls.PeerOf(conn.ConnectionState())
	}
	if err == nil {
		caller.Encrypted, caller.Node = true, peer
		caller.SecurityLevel = credentials.PrivacyAndIntegrity
		if peer.Name.IsZero() {
			return conn, caller, nil
		}
		var held net.Conn
		if held, err = n.hold(conn, raw, peer); err == nil {
			if err = countAsNode(raw, peer.Name.Name); err == nil {
				return held, caller, nil
			}
			_ = held.Close() // the refusal is what counts
		}
	}
	n.refused(caller, err)
	return nil, caller, fmt.Errorf("TLS with %s: %w", caller, err)
}

// connecting is the action of a connection that has no call yet.
const connecting = "connect"

// refused records and logs a refused handshake, but not that a peer went away, as
// monitors do. The log is sampled: journald drops lines beyond its own limit.
func (n *network) refused(caller Caller, err error) {
	const text = "caller refused in the TLS handshake"
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		n.log.Debug(text, "caller", caller.String(), "error", err)
		return
	}
	if left, write := n.sampler.Sample(networkOf(caller.Address)); write {
		n.log.Warn(text, "caller", caller.String(), "error", err, "left_out", left)
	}
	d := authz.Decision{Caller: caller.subject(), Action: connecting, Via: "handshake", Answer: authz.Answer{Reason: err.Error()}, Unknown: true}
	if name := caller.Node.Name; !name.IsZero() {
		d.Who = "node " + name.Name
	}
	if err := n.authorizer.NoteWhole(d, nil); err != nil {
		n.log.Error("refusal not recorded", "caller", caller.String(), "error", err)
	}
}

// hold notes a node's connection until it is closed. It ends no later than the
// certificate that it began with.
func (n *network) hold(conn, raw net.Conn, peer mtls.Peer) (net.Conn, error) {
	held := &nodeConn{Conn: conn, raw: raw}
	held.gone = func() { n.forget(peer.Name.Name, held) }
	n.mu.Lock()
	if n.open[peer.Name.Name] == nil {
		n.open[peer.Name.Name] = map[*nodeConn]struct{}{}
	}
	n.open[peer.Name.Name][held] = struct{}{}
	held.end = time.AfterFunc(time.Until(peer.Certificate.NotAfter), held.cut)
	n.mu.Unlock()
	// Revoked since the handshake looked, and before cut could find it?
	if err := n.accept(peer); err != nil {
		_ = held.Close() // the refusal is what counts
		return nil, err
	}
	return held, nil
}

func (n *network) forget(node string, held *nodeConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open[node], held)
	if len(n.open[node]) == 0 {
		delete(n.open, node)
	}
}

// count returns how many connections a node has.
func (n *network) count(node string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.open[node])
}

// cut ends every connection of a node, and with it all its streams.
func (n *network) cut(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for held := range n.open[node] {
		held.cut()
	}
}

// nodeConn is a node's connection.
type nodeConn struct {
	net.Conn
	raw  net.Conn
	end  *time.Timer
	gone func()
	once sync.Once
}

// Close implements net.Conn.
func (c *nodeConn) Close() error {
	c.once.Do(func() {
		c.end.Stop()
		c.gone()
	})
	return c.Conn.Close()
}

// cut ends it without TLS's close message, which would wait for a peer that
// reads nothing. What reads here finds out, and closes.
func (c *nodeConn) cut() { _ = c.raw.Close() }
