// Package live serves figures while a job runs: whoever connects to a unix
// socket gets JSON lines, the latest first and then each new one. Nothing is
// read from a client, and one that does not keep up is let go, so that no
// reader can hold up the measuring.
package live

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/peercred"
)

// How many lines a client may lag behind, and how long one line may take.
const (
	lag  = 8
	slow = 5 * time.Second
)

// Server has the socket.
type Server struct {
	listener *net.UnixListener
	owner    int
	mu       sync.Mutex
	latest   []byte
	clients  map[*client]bool
	closed   bool
	all      sync.WaitGroup
}

type client struct {
	conn  net.Conn
	lines chan []byte
}

// Listen makes the socket, in a folder that is made if it is missing. Only
// root and the owner get lines. A socket that an agent left which died is
// replaced.
func Listen(path string, owner int) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	// Giving the socket away would take CAP_CHOWN, which the agent has no other
	// use for: the kernel says who connects.
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // G302: take lets nobody in but root and the owner
		return nil, fmt.Errorf("socket %q: %w", path, errors.Join(err, listener.Close()))
	}
	s := &Server{listener: listener, owner: owner, clients: map[*client]bool{}}
	s.all.Add(1)
	go s.accept()
	return s, nil
}

func (s *Server) accept() {
	defer s.all.Done()
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return // closed
		}
		if peer, err := peercred.Of(conn); err != nil || !mayRead(peer.Uid, s.owner) {
			conn.Close()
			continue
		}
		s.take(conn)
	}
}

// mayRead decides who gets a job's figures.
func mayRead(uid uint32, owner int) bool { return uid == 0 || int64(uid) == int64(owner) }

func (s *Server) take(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	c := &client{conn: conn, lines: make(chan []byte, lag)}
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

// Listened tells whether anybody is connected.
func (s *Server) Listened() bool {
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

// Close lets every client have what was sent, and removes the socket.
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
