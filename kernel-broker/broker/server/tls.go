// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
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
	guard  *authz.Guard
	log    *slog.Logger
	// limit is for one who opens a connection and then says nothing.
	limit time.Duration
	words *limit.Words

	mu   sync.Mutex
	open map[string]map[*nodeConn]struct{}
}

// network returns nil where TLS is off.
func (t *TLS) network(handshake time.Duration, g *authz.Guard, log *slog.Logger) *network {
	if t == nil {
		return nil
	}
	n := &network{accept: t.Registry.Accept, guard: g, log: log, limit: handshake, words: limit.NewWords(wordsRate, limit.DefaultKeep, nil), open: map[string]map[*nodeConn]struct{}{}}
	n.config = mtls.ServerConfig(t.Source, t.Registry.Cluster(), t.Registry.Accept)
	t.Registry.OnVoid(n.cut)
	return n
}

func (n *network) handshake(raw net.Conn, caller Caller) (net.Conn, Caller, error) {
	ctx, cancel := context.WithTimeout(context.Background(), n.limit)
	defer cancel()
	conn := tls.Server(raw, n.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		n.refused(caller, err)
		noteAtTheDoor(n.guard, n.log, caller, "handshake", err)
		return nil, caller, fmt.Errorf("TLS with %s: %w", caller, err)
	}
	peer, err := mtls.PeerOf(conn.ConnectionState())
	if err != nil {
		noteAtTheDoor(n.guard, n.log, caller, "handshake", err)
		return nil, caller, err
	}
	caller.Encrypted, caller.Node = true, peer
	caller.SecurityLevel = credentials.PrivacyAndIntegrity
	if peer.Name.IsZero() {
		return conn, caller, nil
	}
	held, err := n.hold(conn, raw, peer)
	if err != nil {
		n.refused(caller, err)
		noteAtTheDoor(n.guard, n.log, caller, "handshake", err)
		return nil, caller, err
	}
	provenNode(raw)
	return held, caller, nil
}

// refused logs what an administrator has to look at. Who only knocks, as
// monitors do, is none of it, and who comes again and again is told of now and
// then: more lines than journald takes would keep the broker's own from it.
func (n *network) refused(caller Caller, err error) {
	const text = "caller refused in the TLS handshake"
	if errors.Is(err, io.EOF) {
		n.log.Debug(text, "caller", caller.String(), "error", err)
		return
	}
	if left, say := n.words.Say(hostOf(caller.Address)); say {
		n.log.Warn(text, "caller", caller.String(), "error", err, "left_out", left)
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

// cut ends it without a word: TLS's own farewell would wait for a peer that
// reads nothing. What reads here finds out, and closes.
func (c *nodeConn) cut() { _ = c.raw.Close() }
