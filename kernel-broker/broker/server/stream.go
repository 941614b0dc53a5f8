// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// callStream is the stream of one call. Its first message must be the one that the call's credential is for, and nothing
// is sent before that. Each message is valid, comes from the node that it names, and no faster than a node may send.
type callStream struct {
	grpc.ServerStream
	ctx   context.Context
	binds func(any) error // nil without a credential
	pace  *rate.Limiter   // nil: none
	late  *time.Timer     // ends the call, unless its first message comes
	begun atomic.Bool     // the first message came
	about atomic.Value    // what it is about, a string
}

var errUnbound = fmt.Errorf("the call's first message, which its credential is for, has not come: %w", kb.ErrUnauthenticated)

// Context implements grpc.ServerStream.
func (s *callStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *callStream) RecvMsg(message any) error {
	first := !s.begun.Load()
	receive := s.ServerStream.RecvMsg
	if first {
		receive = s.receiveFirst
	}
	if err := receive(message); err != nil {
		return err
	}
	if first {
		s.late.Stop()
		if s.binds != nil {
			if err := s.binds(message); err != nil {
				return statusOf(err)
			}
		}
		s.about.Store(objectOf(message))
		s.begun.Store(true)
	}
	if s.pace != nil {
		if err := s.pace.Wait(s.ctx); err != nil {
			return err
		}
	}
	if err := validate(message); err != nil {
		return statusOf(err)
	}
	return statusOf(checkSender(s.ctx, message))
}

// receiveFirst waits until the message is late.
func (s *callStream) receiveFirst(message any) error {
	came := make(chan error, 1)
	go func() { came <- s.ServerStream.RecvMsg(message) }() // ends with the stream
	select {
	case err := <-came:
		return err
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// SendMsg implements grpc.ServerStream.
func (s *callStream) SendMsg(message any) error {
	if s.unbound() {
		return statusOf(errUnbound)
	}
	return s.ServerStream.SendMsg(message)
}

func (s *callStream) unbound() bool { return s.binds != nil && !s.begun.Load() }

// ended is an error for a stream that ended before its first message came.
func (s *callStream) ended(err error) error {
	if err == nil && s.unbound() {
		return errUnbound
	}
	return err
}

// object is what the first message is about; empty before it came.
func (s *callStream) object() string {
	about, _ := s.about.Load().(string)
	return about
}
