// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/stats"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// line is what the server knows of one connection beyond its bytes: what was
// answered on it, and whether that is taken. A client may say by HTTP/2 that it
// takes no more for now, and its answers then lie here; keepalive does not find
// that out, for it answers pings all the same.
type line struct {
	books    *books
	holder   string
	patience time.Duration
	cut      func(why string)

	mu     sync.Mutex
	owed   int64
	mark   int64 // owed when the timer began
	taken  int64 // since
	timer  *time.Timer
	closed bool
}

// owe notes an answer.
func (l *line) owe(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.owed += bytes
	l.books.add(l.holder, bytes)
	if l.timer == nil {
		l.mark, l.taken = l.owed, 0
		l.timer = time.AfterFunc(l.patience, l.look)
	}
}

// paid notes what went out. It has the framing in it, too, and pings: who sends
// as much as he lets lie gains nothing by it.
func (l *line) paid(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken += bytes
	bytes = min(bytes, l.owed)
	l.owed -= bytes
	l.books.add(l.holder, -bytes)
}

// look ends a connection that has not taken what it was owed a while ago.
func (l *line) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed || l.owed == 0:
		l.timer = nil
	case l.taken < l.mark:
		l.timer = nil
		l.cut(fmt.Sprintf("%d bytes of answers were not taken for %v", l.mark-l.taken, l.patience))
	default:
		l.mark, l.taken = l.owed, 0
		l.timer = time.AfterFunc(l.patience, l.look)
	}
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.books.add(l.holder, -l.owed)
	l.owed = 0
}

// books is what each holder's connections are owed together.
type books struct {
	mu sync.Mutex
	of map[string]int64
}

func (b *books) add(holder string, bytes int64) {
	if bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[holder] += bytes; b.of[holder] == 0 {
		delete(b.of, holder)
	}
}

func (b *books) owed(holder string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[holder]
}

// lineConn tells its line what goes out.
type lineConn struct {
	net.Conn
	line *line
}

// Write implements net.Conn.
func (c lineConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.line.paid(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c lineConn) Close() error {
	c.line.close()
	return c.Conn.Close()
}

// lines makes them.
type lines struct {
	books    *books
	patience time.Duration
	words    *limit.Words
	log      *slog.Logger
}

func newLines(b *books, patience time.Duration, log *slog.Logger) *lines {
	return &lines{books: b, patience: patience, log: log, words: limit.NewWords(wordsRate, limit.DefaultKeep, nil)}
}

// on returns conn with a line on it, and the caller with that line. raw is what
// ends it without a word.
func (s *lines) on(conn, raw net.Conn, caller Caller) (net.Conn, Caller) {
	l := &line{books: s.books, holder: caller.holder(), patience: s.patience, cut: func(why string) {
		if left, say := s.words.Say(caller.holder()); say {
			s.log.Warn("connection cut", "caller", caller.String(), "why", why, "left_out", left)
		}
		_ = raw.Close() // what reads there finds out
	}}
	caller.line = l
	return lineConn{conn, l}, caller
}

// debts tells each connection's line what is answered on it.
type debts struct{}

// TagRPC implements stats.Handler.
func (debts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (debts) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if out, ok := s.(*stats.OutPayload); ok {
		if l := CallerOf(ctx).line; l != nil {
			l.owe(int64(out.WireLength))
		}
	}
}

// TagConn implements stats.Handler.
func (debts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (debts) HandleConn(context.Context, stats.ConnStats) {}
