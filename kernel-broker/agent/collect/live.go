// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// How many lines a client of live figures may lag behind, and how long sending a line may take.
const (
	liveLag   = 8
	liveWrite = 5 * time.Second
)

// liveServer hands out figures while a job runs: watchers get JSON lines, the latest first if others listen already, and
// then each new one, and so do clients of a unix socket, if there is one. It reads nothing from clients and disconnects slow
// ones, so that no reader can delay the measurement.
type liveServer struct {
	// end removes the socket.
	end func() error

	mu      sync.Mutex
	latest  []byte
	clients map[chan []byte]bool
	closed  bool
}

func newLiveServer() *liveServer {
	return &liveServer{end: func() error { return nil }, clients: map[chan []byte]bool{}}
}

// listen makes the socket. Only root and the owner get lines.
func (s *liveServer) listen(path string, owner int, log *slog.Logger) error {
	socket, err := local.Listen(path, log)
	if err != nil {
		return err
	}
	s.serve(socket, owner)
	return nil
}

func (s *liveServer) serve(socket *local.Socket, owner int) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	s.end = func() error { cancel(); return <-ended }
	go func() {
		ended <- socket.Run(ctx, local.Handler{
			Allow: liveFor(owner),
			Serve: func(_ context.Context, conn *net.UnixConn) { s.write(conn) },
		})
	}()
}

// liveFor allows root and a job's owner.
func liveFor(owner int) func(uid uint32) error {
	return func(uid uint32) error {
		if uid != 0 && int64(uid) != int64(owner) {
			return fmt.Errorf("user %d: figures of a job are its owner's: %w", uid, kb.ErrDenied)
		}
		return nil
	}
}

// subscribe returns a channel of lines, which is closed at the end or when it is not read.
func (s *liveServer) subscribe() chan []byte {
	lines := make(chan []byte, liveLag)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		close(lines)
		return lines
	}
	if s.latest != nil {
		lines <- s.latest
	}
	s.clients[lines] = true
	return lines
}

func (s *liveServer) unsubscribe(lines chan []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, lines)
	if len(s.clients) == 0 {
		s.latest = nil // none follow it until somebody listens again
	}
}

// write lines to one client until they end or it fails.
func (s *liveServer) write(conn *net.UnixConn) {
	lines := s.subscribe()
	defer s.unsubscribe(lines)
	for line := range lines {
		err := conn.SetWriteDeadline(time.Now().Add(liveWrite))
		if err == nil {
			_, err = conn.Write(line)
		}
		if err != nil {
			return
		}
	}
}

// watch hands over lines until the context or the figures end.
func (s *liveServer) watch(ctx context.Context, hand func(line []byte)) {
	lines := s.subscribe()
	defer s.unsubscribe(lines)
	for {
		select {
		case <-ctx.Done():
			return
		case line, more := <-lines:
			if !more {
				return
			}
			hand(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
}

func (s *liveServer) HasClients() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients) > 0
}

// Publish sends a line to all clients.
func (s *liveServer) Publish(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = line
	for lines := range s.clients {
		select {
		case lines <- line:
		default:
			close(lines)
			delete(s.clients, lines)
		}
	}
}

// Close flushes to all clients and removes the socket.
func (s *liveServer) Close() error {
	s.mu.Lock()
	s.closed = true
	for lines := range s.clients {
		close(lines)
		delete(s.clients, lines)
	}
	s.mu.Unlock()
	return s.end()
}

// liveList limits the entries of a list in a line of figures, liveSources the sources of noise of each CPU.
const (
	liveList    = 20
	liveSources = 5
)

// publish sends a line to the listeners. Without a listener it reads nothing and costs nothing.
func (r *Run) publish(last bool) {
	if !r.server.HasClients() {
		return
	}
	now := r.result
	if !last {
		var err error
		if now, err = r.snapshot(); err != nil {
			r.log.Warn("live figures not whole", "error", err)
		}
	}
	line, err := liveLine(now, last)
	if err != nil {
		r.log.Error("live figures", "error", err)
		return
	}
	r.server.Publish(append(line, '\n'))
}

// liveLine is one line of figures, which a large node must not make too long to pass on.
func liveLine(now profiling.Result, last bool) ([]byte, error) {
	short := Short(now, liveList)
	short.Noise = bounded(short.Noise, (*profiling.Noise).Bound, liveSources)
	return json.Marshal(profiling.Live{Format: profiling.Format, At: time.Now().UTC(), Ended: last, Result: short})
}
