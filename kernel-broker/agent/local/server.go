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
	socket *Socket
	agent  Agent
	log    *slog.Logger
}

// NewServer takes over the socket of an agent that has ended.
func NewServer(path string, agent Agent, log *slog.Logger) (*Server, error) {
	socket, err := Listen(path, log)
	if err != nil {
		return nil, err
	}
	return &Server{socket: socket, agent: agent, log: log}, nil
}

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context) error {
	return s.socket.Run(ctx, Handler{
		// The answer fits into the socket buffer of a new connection, so this does not block.
		Refuse: func(conn *net.UnixConn, err error) { s.answer(conn, Answer{Error: err.Error()}) },
		Serve: func(ctx context.Context, conn *net.UnixConn) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			answer, err := s.handle(ctx, cancel, conn)
			if err != nil {
				answer.Error = err.Error()
			}
			s.answer(conn, answer)
		},
	})
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
	uid, err := s.socket.PeerUID(conn)
	if err != nil {
		return err
	}
	if !trusts(uid) {
		return fmt.Errorf("user %d: this operation requires root: %w", uid, kb.ErrDenied)
	}
	return nil
}
