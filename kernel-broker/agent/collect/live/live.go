// SPDX-License-Identifier: Apache-2.0

// Package live serves figures while a job runs: clients of a unix socket get JSON lines, the latest first and then each
// new one. It reads nothing from clients and disconnects slow ones, so that no reader can delay the measurement.
// Connections per user are limited as at the agent's own socket.
package live

import (
	"fmt"
	"net"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/socket"
)

// How many lines a client may lag behind, and how long sending a line may take.
const (
	lag  = 8
	slow = 5 * time.Second
)

// Server has the socket.
type Server struct {
	listener socket.Listener
	owner    int
	places   *socket.Places
	// peerUID returns the peer's uid; replaced in tests.
	peerUID func(*net.UnixConn) (uint32, error)
	mu      sync.Mutex
	latest  []byte
	clients map[*client]bool
	closed  bool
	all     sync.WaitGroup
}

type client struct {
	conn  net.Conn
	free  func() // releases its slot
	lines chan []byte
}

// Listen makes the socket, in a folder that is made if it is missing. Only
// root and the owner get lines. A socket that an agent left which died is
// replaced.
func Listen(path string, owner int) (*Server, error) {
	listener, err := socket.Listen(path)
	if err != nil {
		return nil, err
	}
	return start(listener, owner, socket.UID), nil
}

func start(listener socket.Listener, owner int, who func(*net.UnixConn) (uint32, error)) *Server {
	s := &Server{listener: listener, owner: owner, peerUID: who, places: socket.NewPlaces(), clients: map[*client]bool{}}
	s.all.Add(1)
	go s.accept()
	return s
}

func (s *Server) accept() {
	defer s.all.Done()
	for {
		conn, err := socket.Accept(s.listener, nil)
		if err != nil {
			return // closed
		}
		free, err := s.admit(conn)
		if err != nil {
			conn.Close()
			continue
		}
		s.take(conn, free)
	}
}

// admit acquires a slot for a connection: each uses a descriptor and memory of the agent, outside of the job's limits.
func (s *Server) admit(conn *net.UnixConn) (free func(), err error) {
	uid, err := s.peerUID(conn)
	if err != nil {
		return nil, err
	}
	if !mayRead(uid, s.owner) {
		return nil, fmt.Errorf("user %d: figures of a job are its owner's: %w", uid, kb.ErrDenied)
	}
	free, _, err = s.places.Take(uid)
	return free, err
}

// mayRead reports whether a user may read a job's figures.
func mayRead(uid uint32, owner int) bool { return uid == 0 || int64(uid) == int64(owner) }

func (s *Server) take(conn net.Conn, free func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		free()
		return
	}
	c := &client{conn: conn, free: free, lines: make(chan []byte, lag)}
	if s.latest != nil {
		c.lines <- s.latest
	}
	s.clients[c] = true
	s.all.Add(1)
	go s.serve(c)
}

// serve writes to one client until its channel is closed or it fails.
func (s *Server) serve(c *client) {
	defer s.all.Done()
	defer c.free()
	defer c.conn.Close()
	for line := range c.lines {
		err := c.conn.SetWriteDeadline(time.Now().Add(slow))
		if err == nil {
			_, err = c.conn.Write(line)
		}
		if err != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, c)
}

// HasClients reports whether a client is connected.
func (s *Server) HasClients() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients) > 0
}

// Publish sends a line to all clients.
func (s *Server) Publish(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = line
	for c := range s.clients {
		select {
		case c.lines <- line:
		default:
			close(c.lines)
			delete(s.clients, c)
		}
	}
}

// Close flushes to all clients and removes the socket.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.clients {
		close(c.lines)
		delete(s.clients, c)
	}
	s.mu.Unlock()
	s.all.Wait()
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	return nil
}
