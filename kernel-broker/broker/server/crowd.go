// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/peercred"
)

// Listener returns l with its connections counted and limited. Who finds no
// place is hung up on at once: were he left to wait, so would everybody behind
// him.
func (o Options) Listener(l net.Listener) net.Listener {
	o = o.orDefaults()
	c := &crowd{Listener: l, limits: o.Limits, guard: o.Guard, log: o.Log, words: limit.NewWords(wordsRate, limit.DefaultKeep, nil),
		all: limit.NewPlaces(o.Limits.Connections), guests: limit.NewPlaces(o.Limits.Guests),
		always: slices.Concat(o.always(), o.SlurmUsers), certificates: o.TLS != nil}
	return c
}

// crowd is a listener.
type crowd struct {
	net.Listener
	limits       Limits
	guard        *authz.Guard // nil: nothing is recorded
	log          *slog.Logger
	words        *limit.Words
	all, guests  *limit.Places
	always       []uint32 // for them there is always a place
	certificates bool
}

// Accept implements net.Listener.
func (l *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		held, who := l.admit(conn)
		if held != nil {
			return held, nil
		}
		noteAtTheDoor(l.guard, l.log, callerAt(conn), "connection", fmt.Errorf("too many connections: %w", kb.ErrExhausted))
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // nothing stays behind in the kernel either
		}
		_ = conn.Close() // he hears of it by that
		if left, say := l.words.Say(who); say {
			his, all := l.all.Taken(who)
			_, guests := l.guests.Taken(who)
			l.log.Warn("connection refused: too many", "peer", who, "of_peer", his, "at_most", l.limits.PeerConnections,
				"all", all, "guests", guests, "left_out", left)
		}
	}
}

// admit returns nil for one who finds no place.
func (l *crowd) admit(conn net.Conn) (held *heldConn, who string) {
	if local, ok := conn.(*net.UnixConn); ok {
		ucred, err := peercred.Of(local)
		if err != nil {
			return nil, "local socket"
		}
		if slices.Contains(l.always, ucred.Uid) {
			return &heldConn{Conn: conn}, ""
		}
		who = fmt.Sprintf("uid %d", ucred.Uid)
		free := l.guests.Take(who, l.limits.PeerConnections)
		if free == nil {
			return nil, who
		}
		return &heldConn{Conn: conn, free: free}, who
	}
	who = hostOf(conn.RemoteAddr().String())
	held = &heldConn{Conn: conn}
	if held.free = l.all.Take(who, l.limits.PeerConnections); held.free == nil {
		return nil, who
	}
	// Where nodes do not prove themselves they are not told from others.
	if l.certificates {
		if held.guest = l.guests.Take(who, l.limits.PeerConnections); held.guest == nil {
			held.free()
			return nil, who
		}
	}
	return held, who
}

// wordsRate is how often the same one is complained of in log and record.
var wordsRate = limit.Rate{PerSecond: 0.1, Burst: 1}

func newWords() *limit.Rates { return limit.NewRates(wordsRate, limit.DefaultKeep, nil) }

// heldConn is a connection that has a place.
type heldConn struct {
	net.Conn
	free, guest func()
	once        sync.Once
}

// proven gives back the guest's place: it is a node's.
func (c *heldConn) proven() {
	if c.guest != nil {
		c.guest()
	}
}

// Close implements net.Conn.
func (c *heldConn) Close() error {
	c.once.Do(func() {
		c.proven()
		if c.free != nil {
			c.free()
		}
	})
	return c.Conn.Close()
}

// provenNode gives the place of a guest back that a node's connection had until
// the node was known.
func provenNode(conn net.Conn) {
	if held, ok := conn.(*heldConn); ok {
		held.proven()
	}
}

// unheld is the connection as the system knows it.
func unheld(conn net.Conn) net.Conn {
	if held, ok := conn.(*heldConn); ok {
		return held.Conn
	}
	return conn
}
