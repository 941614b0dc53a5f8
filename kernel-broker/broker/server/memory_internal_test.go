// SPDX-License-Identifier: Apache-2.0

package server

import (
	"log/slog"
	"net"
	"testing"
	"time"
)

// endless is a connection that notes its end.
type endless struct {
	net.Conn
	ended bool
}

func (*endless) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (c *endless) Close() error {
	c.ended = true
	return nil
}

// The largest connection of the caller who takes most ends first, and strangers take nothing of others.
func TestWhoIsCut(t *testing.T) {
	m := newMemory(1000, time.Minute, slog.New(slog.DiscardHandler))
	made := func(holder string, stranger bool, unfinished, answers int64) (*accountedConn, *endless) {
		raw := &endless{}
		c := m.account(raw, raw, holder, stranger, false)
		c.change(answers, unfinished)
		return c, raw
	}
	small, smallRaw := made("10.0.0.1", true, 300, 0)
	_, many1 := made("10.0.0.2", true, 200, 0)
	_, many2 := made("10.0.0.2", true, 100, 150)
	node, nodeRaw := made("node n1", false, 7000, 5000)
	_, hook := made("uid 1", false, 900, 0)
	ends := func(what string, want ...*endless) {
		t.Helper()
		for _, raw := range []*endless{smallRaw, many1, many2, nodeRaw, hook} {
			is := false
			for _, w := range want {
				is = is || w == raw
			}
			if raw.ended != is {
				t.Errorf("%s: connection %p: ended %v", what, raw, raw.ended)
			}
		}
	}
	ends("all have room")
	small.change(0, 100) // 10.0.0.2 has 450 in two connections, small 400 in one
	small.change(200, 0)
	ends("strangers are over", smallRaw)
	node.change(0, 200)
	ends("others are over", smallRaw, nodeRaw)
	late, lateRaw := made("10.0.0.3", true, 400, 0)
	late.known()
	if lateRaw.ended || m.strangers.used != 450 || m.known.used != 1300 {
		t.Errorf("one who is known now: ended %v, strangers %d, others %d", lateRaw.ended, m.strangers.used, m.known.used)
	}
	if err := late.Close(); err != nil || m.known.used != 900 || len(m.of) != 1 {
		t.Errorf("%v, %d used, answers %v", err, m.known.used, m.of)
	}
	if err := node.Close(); err != nil || m.known.used != 900 {
		t.Errorf("closed after it was cut: %v, %d used", err, m.known.used)
	}
}
