// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/socket"
)

const (
	readTimeout  = 2 * time.Second
	writeTimeout = 2 * time.Second
	maxWait      = time.Hour
)

// Agent handles the socket's requests.
type Agent interface {
	JobEnding(ctx context.Context, job uint32) (bool, error)
	Status() NodeStatus
	// WaitReady returns nil when slurmd may be started.
	WaitReady(ctx context.Context) error
}

// Server answers on a socket.
type Server struct {
	listener socket.Listener
	agent    Agent
	log      *slog.Logger
	places   *socket.Places
	// peerUID returns the peer's uid; replaced in tests.
	peerUID func(*net.UnixConn) (uint32, error)
	// short is when the log last reported that accept failed.
	short time.Time
}

// Listen takes over the socket of an agent that has ended.
func Listen(path string, agent Agent, log *slog.Logger) (*Server, error) {
	listener, err := socket.Listen(path)
	if err != nil {
		return nil, err
	}
	return &Server{listener: listener, agent: agent, log: log, places: socket.NewPlaces(), peerUID: socket.UID}, nil
}

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.listener.Close() })
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for {
		conn, err := socket.Accept(s.listener, s.logAcceptError)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		free, ok := s.admit(conn)
		if !ok {
			continue
		}
		clients.Go(func() {
			defer free()
			s.serve(ctx, conn)
		})
	}
}

// acceptLogEvery is the minimum interval between log lines about failing accepts.
const acceptLogEvery = time.Minute

// logAcceptError logs why the next client must wait.
func (s *Server) logAcceptError(err error) {
	if now := time.Now(); now.Sub(s.short) >= acceptLogEvery {
		s.short = now
		s.log.Error("clients of the agent's socket wait, it is tried again", "error", err)
	}
}

// admit acquires a slot for a connection, or closes it with the reason.
func (s *Server) admit(conn *net.UnixConn) (free func(), ok bool) {
	uid, err := s.peerUID(conn)
	first := true
	if err == nil {
		if free, first, err = s.places.Take(uid); err == nil {
			return free, true
		}
	}
	if first {
		s.log.Warn("client refused on the agent's socket", "error", err)
	}
	// The answer fits into the socket buffer of a new connection, so this does not block.
	s.answer(conn, Answer{Error: err.Error()})
	conn.Close()
	return nil, false
}

func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := s.handle(ctx, cancel, conn)
	if err != nil {
		answer.Error = err.Error()
	}
	s.answer(conn, answer)
}

func (s *Server) answer(conn *net.UnixConn, answer Answer) {
	raw, err := json.Marshal(answer)
	if err == nil {
		err = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	if err == nil {
		_, err = conn.Write(append(raw, '\n'))
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		s.log.Warn("local request not answered", "error", err)
	}
}

func (s *Server) handle(ctx context.Context, cancel context.CancelFunc, conn *net.UnixConn) (Answer, error) {
	if err := conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return Answer{}, err
	}
	line, err := readLine(conn)
	if err != nil {
		return Answer{}, fmt.Errorf("request: %w", err)
	}
	r, err := ParseRequest(line)
	if err != nil {
		return Answer{}, err
	}
	switch r.Op {
	case JobEnding:
		if err := s.onlyRoot(conn); err != nil {
			return Answer{}, err
		}
		ctx, cancel := context.WithTimeout(ctx, JobEndingTimeout)
		defer cancel()
		kept, err := s.agent.JobEnding(ctx, r.Job)
		return Answer{Kept: kept}, err
	case WaitReady:
		return s.waitReady(ctx, cancel, conn, r)
	default:
		status := s.agent.Status()
		return Answer{Ready: status.Ready, Status: &status}, nil
	}
}

// waitReady also ends when the client disconnects.
func (s *Server) waitReady(ctx context.Context, cancel context.CancelFunc, conn *net.UnixConn, r Request) (Answer, error) {
	wait := time.Duration(min(r.TimeoutMS, maxWait.Milliseconds())) * time.Millisecond
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return Answer{}, err
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			cancel()
		}
	})
	err := s.agent.WaitReady(ctx)
	// Ends the watch, whatever it waits for.
	if deadline := conn.SetReadDeadline(time.Now()); deadline == nil {
		watch.Wait()
	}
	return Answer{Ready: err == nil}, err
}

// onlyRoot lets root and the agent's own user through: the epilog runs as root.
func (s *Server) onlyRoot(conn *net.UnixConn) error {
	uid, err := s.peerUID(conn)
	if err != nil {
		return err
	}
	if !socket.Trusts(uid) {
		return fmt.Errorf("user %d: this operation requires root: %w", uid, kb.ErrDenied)
	}
	return nil
}
