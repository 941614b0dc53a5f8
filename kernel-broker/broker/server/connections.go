// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/peercred"
)

// Listener limits the connections of l. Connections over the limit are closed
// immediately: making them wait would keep all behind them waiting.
func (o Options) Listener(l net.Listener) net.Listener {
	o = o.orDefaults()
	return &limitedListener{Listener: l, most: o.Limits.PeerConnections, log: o.Log, sampler: limit.NewLogSampler(logRate),
		all: limit.NewSemaphore(o.Limits.Connections), unauthenticated: limit.NewSemaphore(o.Limits.Unauthenticated),
		exempt: slices.Concat(o.always(), o.SlurmUsers), certificates: o.TLS != nil}
}

type limitedListener struct {
	net.Listener
	most                 int // of one address or local user
	log                  *slog.Logger
	sampler              *limit.LogSampler
	all, unauthenticated *limit.Semaphore
	exempt               []uint32 // local users
	certificates         bool
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		limited, peer := l.admit(conn)
		if limited != nil {
			return limited, nil
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // leaves nothing in the kernel
		}
		_ = conn.Close() // tells the peer
		if left, write := l.sampler.Sample(peer); write {
			own, all := l.all.Held(peer)
			_, unauthenticated := l.unauthenticated.Held(peer)
			l.log.Warn("connection refused: too many", "peer", peer, "of_peer", own, "at_most", l.most,
				"all", all, "unauthenticated", unauthenticated, "left_out", left)
		}
	}
}

// admit returns nil for a connection over the limit.
func (l *limitedListener) admit(conn net.Conn) (limited *limitedConn, peer string) {
	limited = &limitedConn{Conn: conn, release: func() {}, authenticated: func() {}}
	if local, ok := conn.(*net.UnixConn); ok {
		ucred, err := peercred.Of(local)
		if err != nil {
			return nil, "local socket"
		}
		if slices.Contains(l.exempt, ucred.Uid) {
			return limited, ""
		}
		peer = fmt.Sprintf("uid %d", ucred.Uid)
		if limited.release = l.unauthenticated.TryAcquire(peer, l.most); limited.release == nil {
			return nil, peer
		}
		return limited, peer
	}
	peer = hostOf(conn.RemoteAddr().String())
	if limited.release = l.all.TryAcquire(peer, l.most); limited.release == nil {
		return nil, peer
	}
	// Without certificates nodes cannot be told from others.
	if l.certificates {
		if limited.authenticated = l.unauthenticated.TryAcquire(peer, l.most); limited.authenticated == nil {
			limited.release()
			return nil, peer
		}
	}
	return limited, peer
}

// limitedConn is a connection that is counted until it is closed.
type limitedConn struct {
	net.Conn
	release func()
	// authenticated ends its count among those that are not.
	authenticated func()
	once          sync.Once
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.once.Do(func() {
		c.authenticated()
		c.release()
	})
	return c.Conn.Close()
}

// markAuthenticated is called when a connection is known to be a node's.
func markAuthenticated(conn net.Conn) {
	if limited, ok := conn.(*limitedConn); ok {
		limited.authenticated()
	}
}

// unlimited is the connection as the system knows it.
func unlimited(conn net.Conn) net.Conn {
	if limited, ok := conn.(*limitedConn); ok {
		return limited.Conn
	}
	return conn
}
