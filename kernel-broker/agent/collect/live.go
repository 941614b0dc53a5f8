// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
)

// How many lines a client of live figures may lag behind, and how long sending a line may take.
const (
	liveLag   = 8
	liveWrite = 5 * time.Second
)

// liveServer serves figures while a job runs: clients of a unix socket get JSON lines, the latest first and then each new
// one. It reads nothing from clients and disconnects slow ones, so that no reader can delay the measurement.
type liveServer struct {
	cancel context.CancelFunc
	ended  chan error

	mu      sync.Mutex
	latest  []byte
	clients map[chan []byte]bool
	closed  bool
}

// listenLive makes the socket. Only root and the owner get lines.
func listenLive(path string, owner int, log *slog.Logger) (*liveServer, error) {
	socket, err := local.Listen(path, log)
	if err != nil {
		return nil, err
	}
	return serveLive(socket, owner), nil
}

func serveLive(socket *local.Socket, owner int) *liveServer {
	ctx, cancel := context.WithCancel(context.Background())
	s := &liveServer{cancel: cancel, ended: make(chan error, 1), clients: map[chan []byte]bool{}}
	go func() {
		s.ended <- socket.Run(ctx, local.Handler{
			Allow: liveFor(owner),
			Serve: func(_ context.Context, conn *net.UnixConn) { s.serve(conn) },
		})
	}()
	return s
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

// serve writes to one client until its channel is closed or it fails.
func (s *liveServer) serve(conn *net.UnixConn) {
	lines := make(chan []byte, liveLag)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	if s.latest != nil {
		lines <- s.latest
	}
	s.clients[lines] = true
	s.mu.Unlock()
	for line := range lines {
		err := conn.SetWriteDeadline(time.Now().Add(liveWrite))
		if err == nil {
			_, err = conn.Write(line)
		}
		if err != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, lines)
}

// HasClients reports whether a client is connected.
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
	s.cancel()
	s.mu.Lock()
	s.closed = true
	for lines := range s.clients {
		close(lines)
		delete(s.clients, lines)
	}
	s.mu.Unlock()
	return <-s.ended
}
