// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/stats"
)

// backlog accounts for the bytes of answers that callers have not received yet.
// HTTP/2 lets a client refuse data for as long as it likes, and its answers stay
// in the broker's memory.
type backlog struct {
	mu sync.Mutex
	of map[string]int64
}

func newBacklog() *backlog { return &backlog{of: map[string]int64{}} }

func (b *backlog) bytes(holder string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[holder]
}

// accountedConn accounts for one connection.
type accountedConn struct {
	net.Conn
	backlog *backlog
	holder  string

	pending int64 // guarded by backlog.mu
	closed  bool
}

// add changes the account. Framing is written beside the answers, so the account
// never goes below zero.
func (c *accountedConn) add(bytes int64) {
	c.backlog.mu.Lock()
	defer c.backlog.mu.Unlock()
	if !c.closed {
		c.addLocked(bytes)
	}
}

func (c *accountedConn) addLocked(bytes int64) {
	bytes = max(bytes, -c.pending)
	c.pending += bytes
	if c.backlog.of[c.holder] += bytes; c.backlog.of[c.holder] == 0 {
		delete(c.backlog.of, c.holder)
	}
}

// Write implements net.Conn.
func (c *accountedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.add(-int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *accountedConn) Close() error {
	c.backlog.mu.Lock()
	c.addLocked(-c.pending)
	c.closed = true
	c.backlog.mu.Unlock()
	return c.Conn.Close()
}

// answers adds what each call sends to its connection's account.
type answers struct{}

// HandleRPC implements stats.Handler.
func (answers) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if out, ok := s.(*stats.OutPayload); ok {
		if conn := CallerOf(ctx).conn; conn != nil {
			conn.add(int64(out.WireLength))
		}
	}
}

// TagRPC implements stats.Handler.
func (answers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (answers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (answers) HandleConn(context.Context, stats.ConnStats) {}
