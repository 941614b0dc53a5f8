// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/peercred"
)

// Handler is what a socket of the agent does with connections.
type Handler struct {
	// Allow returns why a user may not connect; nil allows every user.
	Allow func(uid uint32) error
	// Refuse answers a connection before it is closed; nil for no answer.
	Refuse func(conn *net.UnixConn, err error)
	// Serve serves a connection, which is then closed.
	Serve func(ctx context.Context, conn *net.UnixConn)
}

// Socket is the common part of the agent's sockets for users of the node: any user may connect, the kernel identifies the
// peer, connections per user are limited, and temporary errors do not end the server.
type Socket struct {
	// PeerUID returns the user at the other end; replaced in tests.
	PeerUID func(*net.UnixConn) (uint32, error)

	listener interface {
		AcceptUnix() (*net.UnixConn, error)
		Close() error
	}
	connections connections
	log         *slog.Logger
	// failed is when the log last reported that accept failed.
	failed time.Time
}

// Listen creates a socket that all users may connect to, in a folder that is created if missing. It replaces the socket
// of a dead agent.
func Listen(path string, log *slog.Logger) (*Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	// Changing the socket's owner would need CAP_CHOWN, which the agent does not need otherwise.
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // G302: a socket for all users: the kernel identifies the peer
		return nil, fmt.Errorf("socket %q: %w", path, errors.Join(err, listener.Close()))
	}
	return &Socket{PeerUID: peerUID, listener: listener, connections: newConnections(), log: log}, nil
}

func peerUID(conn *net.UnixConn) (uint32, error) {
	peer, err := peercred.Of(conn)
	if err != nil {
		return 0, fmt.Errorf("peer: %w", err)
	}
	return peer.Uid, nil
}

// Run serves connections until the context ends, and then waits for them.
func (s *Socket) Run(ctx context.Context, h Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.listener.Close() })
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for {
		conn, err := s.accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		release, first, err := s.admit(conn, h)
		if err != nil {
			if first {
				s.log.Warn("client refused on the agent's socket", "error", err)
			}
			if h.Refuse != nil {
				h.Refuse(conn, err)
			}
			conn.Close()
			continue
		}
		clients.Go(func() {
			defer release()
			defer conn.Close()
			h.Serve(ctx, conn)
		})
	}
}

// temporary are errors unrelated to the socket: the client is gone, or descriptors or memory are short for a while.
var temporary = []error{unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM}

const (
	// acceptPause is the wait after such an error, and acceptLogEvery the minimum interval between log lines about them.
	acceptPause    = 100 * time.Millisecond
	acceptLogEvery = time.Minute
)

// accept waits for the next connection and retries after temporary errors. An error means that the socket is closed or
// broken.
func (s *Socket) accept() (*net.UnixConn, error) {
	for {
		conn, err := s.listener.AcceptUnix()
		if !slices.ContainsFunc(temporary, func(one error) bool { return errors.Is(err, one) }) {
			return conn, err
		}
		if now := time.Now(); now.Sub(s.failed) >= acceptLogEvery {
			s.failed = now
			s.log.Error("clients of the agent's socket wait, it is tried again", "error", err)
		}
		time.Sleep(acceptPause)
	}
}

// admit acquires a slot for a connection: each uses a descriptor and memory of the agent. first reports that the log does
// not have this user's refusal yet.
func (s *Socket) admit(conn *net.UnixConn, h Handler) (release func(), first bool, err error) {
	uid, err := s.PeerUID(conn)
	if err != nil {
		return nil, true, err
	}
	if h.Allow != nil {
		if err := h.Allow(uid); err != nil {
			return nil, false, err
		}
	}
	return s.connections.acquire(uid)
}
