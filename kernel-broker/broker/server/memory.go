// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// knownShare is how many times the memory of strangers all others have together:
// 10,000 nodes that come at once have it.
const knownShare = 8

// leastUnfinished has room for the requests of one connection, each frame with one
// byte.
const leastUnfinished = 1 << 20

var (
	errCut         = errors.New("connection closed: its requests take too much memory")
	errLateHeaders = errors.New("connection closed: headers have not come in time")
)

// memory accounts for what callers keep in the broker's memory by being slow: the
// answers that they have not received, since HTTP/2 lets a client refuse data for as
// long as it likes, and the requests that they have not sent whole.
type memory struct {
	log     *slog.Logger
	sampler *limit.LogSampler
	arrival time.Duration // of headers

	mu sync.Mutex
	of map[string]int64 // bytes of answers, by caller
	// strangers have proven nothing. Their answers count, too.
	strangers, known budget
}

// budget is what some connections may take together.
type budget struct {
	limit, used int64
	connections map[*accountedConn]struct{}
}

func newMemory(strangers int64, arrival time.Duration, log *slog.Logger) *memory {
	made := func(limit int64) budget { return budget{limit: limit, connections: map[*accountedConn]struct{}{}} }
	return &memory{log: log, arrival: arrival, sampler: limit.NewLogSampler(logRate), of: map[string]int64{}, strangers: made(strangers), known: made(knownShare * strangers)}
}

// backlog is how many bytes of answers a caller has not received.
func (m *memory) backlog(holder string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[holder]
}

// heaviest is the largest connection of the caller who takes most: small requests
// pass beside large ones that never end.
func (b *budget) heaviest() (largest *accountedConn) {
	of, most := map[string]int64{}, ""
	for c := range b.connections {
		of[c.holder] += c.weight()
		if of[c.holder] > of[most] {
			most = c.holder
		}
	}
	for c := range b.connections {
		if c.holder == most && (largest == nil || c.weight() > largest.weight()) {
			largest = c
		}
	}
	return largest
}

// accountedConn accounts for one connection.
type accountedConn struct {
	net.Conn
	raw    net.Conn
	memory *memory
	holder string
	// requests is nil for callers without limits.
	requests *requests
	stranger atomic.Bool
	late     *time.Timer // ends it, unless its headers come; of the goroutine that reads

	// Guarded by memory.mu.
	answers, unfinished int64
	closed              bool
}

// account begins to account for a connection, whose raw one ends it.
func (m *memory) account(conn, raw net.Conn, holder string, stranger, exempt bool) *accountedConn {
	c := &accountedConn{Conn: conn, raw: raw, memory: m, holder: holder}
	c.stranger.Store(stranger)
	if !exempt {
		c.requests = newRequests()
	}
	return c
}

// weight is what counts of its budget.
func (c *accountedConn) weight() int64 {
	if c.stranger.Load() {
		return c.unfinished + c.answers
	}
	return c.unfinished
}

func (c *accountedConn) budget() *budget {
	if c.stranger.Load() {
		return &c.memory.strangers
	}
	return &c.memory.known
}

// known is called when it is proven who is at the other end.
func (c *accountedConn) known() {
	if !c.stranger.Load() {
		return
	}
	var complete int64
	if c.requests != nil {
		complete = c.requests.known()
	}
	c.update(func() {
		c.unfinished += complete
		c.stranger.Store(false)
	})
}

// change changes the account. Framing is written beside the answers, so that account
// never goes below zero.
func (c *accountedConn) change(answers, unfinished int64) {
	c.update(func() {
		answers = max(answers, -c.answers)
		c.answers += answers
		c.unfinished += unfinished
		if c.memory.of[c.holder] += answers; c.memory.of[c.holder] == 0 {
			delete(c.memory.of, c.holder)
		}
	})
}

// update changes the account, and ends connections while a budget is exceeded.
func (c *accountedConn) update(change func()) {
	m := c.memory
	m.mu.Lock()
	if c.closed {
		m.mu.Unlock()
		return
	}
	c.leave()
	change()
	b := c.budget()
	if weight := c.weight(); weight > 0 {
		b.used += weight
		b.connections[c] = struct{}{}
	}
	var ended []*accountedConn
	for b.used > b.limit {
		heaviest := b.heaviest()
		if heaviest == nil {
			break
		}
		heaviest.settle()
		ended = append(ended, heaviest)
	}
	m.mu.Unlock()
	for _, e := range ended {
		e.cut(errCut)
	}
}

// leave takes it out of its budget.
func (c *accountedConn) leave() {
	b := c.budget()
	if _, in := b.connections[c]; in {
		b.used -= c.weight()
		delete(b.connections, c)
	}
}

// settle ends the account.
func (c *accountedConn) settle() {
	c.leave()
	if c.memory.of[c.holder] -= c.answers; c.memory.of[c.holder] == 0 {
		delete(c.memory.of, c.holder)
	}
	c.answers, c.unfinished, c.closed = 0, 0, true
}

// cut ends it without TLS's close message, which would wait for a peer that reads
// nothing. gRPC finds out, and closes.
func (c *accountedConn) cut(reason error) {
	if left, write := c.memory.sampler.Sample(c.holder); write {
		c.memory.log.Warn("connection closed", "caller", c.holder, "peer", c.raw.RemoteAddr().String(), "error", reason, "left_out", left)
	}
	_ = c.raw.Close()
}

// Read implements net.Conn.
func (c *accountedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.late != nil {
		c.late.Stop()
	}
	if n == 0 || c.requests == nil {
		return n, err
	}
	bytes, refused := c.requests.received(p[:n], c.stranger.Load())
	if bytes != 0 {
		c.change(0, bytes)
	}
	c.timeHeaders()
	if refused != nil {
		c.cut(refused)
		return 0, refused
	}
	return n, err
}

// timeHeaders limits the time for headers: gRPC takes them for no sign of life before
// they are complete, and asks for one only after a long time.
func (c *accountedConn) timeHeaders() {
	switch under := c.requests.inHeaders(); {
	case under && c.late == nil:
		c.late = time.AfterFunc(c.memory.arrival, func() { c.cut(errLateHeaders) })
	case !under && c.late != nil:
		c.late.Stop()
		c.late = nil
	}
}

// Write implements net.Conn.
func (c *accountedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	var ended int64
	if c.requests != nil {
		ended = c.requests.sent(p[:n])
	}
	c.change(-int64(n), ended)
	return n, err
}

// Close implements net.Conn.
func (c *accountedConn) Close() error {
	c.memory.mu.Lock()
	if !c.closed {
		c.settle()
	}
	c.memory.mu.Unlock()
	return c.Conn.Close()
}

// answers adds what each call sends to its connection's account.
type answers struct{}

// HandleRPC implements stats.Handler.
func (answers) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if out, ok := s.(*stats.OutPayload); ok {
		if conn := CallerOf(ctx).conn; conn != nil {
			conn.change(int64(out.WireLength), 0)
		}
	}
}

// TagRPC implements stats.Handler.
func (answers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (answers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (answers) HandleConn(context.Context, stats.ConnStats) {}
