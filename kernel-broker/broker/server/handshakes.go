// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// handshakesPerCPU compute at a time by default.
const handshakesPerCPU = 4

// handshakes has TLS handshakes wait in the order in which they came, so that those
// that run are done before their clients give up. Ten thousand that run at once are
// all too late, and are all tried again.
//
// A handshake has a turn while it computes, and none while it waits for its client: so
// a client that is slow keeps nobody else waiting. Its second half, when the client has
// answered, has turns of its own, since what is begun is to be finished first.
type handshakes struct {
	first, second *semaphore.Weighted
	wait, limit   time.Duration

	// ctx ends with the server.
	ctx  context.Context
	stop context.CancelFunc
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newHandshakes(l Limits) *handshakes {
	n := int64(l.Handshakes)
	if n == 0 {
		n = int64(handshakesPerCPU * runtime.GOMAXPROCS(0))
	}
	h := &handshakes{first: semaphore.NewWeighted(n), second: semaphore.NewWeighted(n), wait: l.HandshakeWait, limit: l.Handshake, open: map[net.Conn]struct{}{}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// close ends handshakes that are under way.
func (h *handshakes) close() {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for conn := range h.open {
		_ = conn.Close()
	}
}

// begin waits for a place of those whose client is not known yet. done ends the
// handshake, but not its place.
func (h *handshakes) begin(raw net.Conn) (conn *handshakeConn, done func(), err error) {
	conn = &handshakeConn{Conn: raw, left: maxHandshake, of: h, until: time.Now().Add(h.wait)}
	h.mu.Lock()
	h.open[raw] = struct{}{}
	h.mu.Unlock()
	done = func() {
		conn.pause()
		conn.done = true
		h.mu.Lock()
		delete(h.open, raw)
		h.mu.Unlock()
	}
	limited, ok := raw.(*limitedConn)
	if ok && limited.places != nil {
		ctx, cancel := context.WithDeadline(h.ctx, conn.until)
		defer cancel()
		err = limited.takePlace(ctx)
	}
	if err == nil {
		err = h.ctx.Err()
	}
	if err == nil {
		err = raw.SetDeadline(time.Now().Add(h.limit))
	}
	if err != nil {
		done()
	}
	return conn, done, err
}

// config returns the settings with which handshakes take turns.
func (h *handshakes) config(from *tls.Config) *tls.Config {
	config := from.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		conn, ok := hello.Conn.(*handshakeConn)
		if !ok {
			return nil, fmt.Errorf("connection %T takes no turns", hello.Conn)
		}
		if err := conn.turn(h.first); err != nil {
			return nil, err
		}
		if gone(conn.Conn) {
			return nil, io.EOF // nothing is computed for who did not wait
		}
		chosen := from
		if from.GetConfigForClient != nil {
			var err error
			if chosen, err = from.GetConfigForClient(hello); err != nil {
				return nil, err
			}
		}
		own := chosen.Clone()
		own.VerifyConnection = func(state tls.ConnectionState) error {
			// What is begun is not given up for the time that it took so far.
			conn.until = time.Now().Add(h.wait)
			if err := conn.turn(h.second); err != nil {
				return err
			}
			return chosen.VerifyConnection(state)
		}
		return own, nil
	}
	return config
}

// maxHandshake is more than a chain of certificates has. crypto/tls would keep ten
// times as much of a client that sends its certificate for as long as it may.
const maxHandshake = 32 << 10

var errHandshakeBytes = fmt.Errorf("handshake has more than %d bytes", maxHandshake)

// handshakeConn is a connection in its handshake: it takes turns, and reads so many
// bytes. One goroutine uses it until the handshake is done.
type handshakeConn struct {
	net.Conn
	left int
	done bool

	of    *handshakes
	until time.Time           // for turns to come
	has   *semaphore.Weighted // the turn that it has
}

// turn waits for one. The client is given its time anew: the wait was not its own.
func (c *handshakeConn) turn(turns *semaphore.Weighted) error {
	c.pause()
	ctx, cancel := context.WithDeadline(c.of.ctx, c.until)
	defer cancel()
	if err := turns.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("no turn within %v, since too many clients connect at once: %w", c.of.wait, kb.ErrExhausted)
	}
	c.has = turns
	return c.SetDeadline(time.Now().Add(c.of.limit))
}

// gone reports whether a client that has sent its first message has hung up since.
func gone(conn net.Conn) (is bool) {
	tcp, ok := unlimited(conn).(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		is = n == 0 && err == nil || errors.Is(err, unix.ECONNRESET)
	})
	return is || err != nil
}

// pause gives the turn to the next one.
func (c *handshakeConn) pause() {
	if c.has != nil {
		c.has.Release(1)
		c.has = nil
	}
}

// Read implements net.Conn.
func (c *handshakeConn) Read(p []byte) (int, error) {
	if c.done {
		return c.Conn.Read(p)
	}
	if c.left == 0 {
		return 0, errHandshakeBytes
	}
	c.pause()
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
