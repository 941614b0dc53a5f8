// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// boundStream binds a stream to its credential: the first message must be the one
// that the credential is for. Nothing is sent before it came.
type boundStream struct {
	grpc.ServerStream
	binds func(any) error // nil without a credential
	bound atomic.Bool
	about atomic.Value // what the first message is about, a string
}

var errUnbound = fmt.Errorf("the call's first message, which its credential is for, has not come: %w", kb.ErrUnauthenticated)

// RecvMsg implements grpc.ServerStream.
func (s *boundStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if s.bound.Load() {
		return nil
	}
	if s.binds != nil {
		if err := s.binds(message); err != nil {
			return statusOf(err)
		}
	}
	s.about.Store(objectOf(message))
	s.bound.Store(true)
	return nil
}

// SendMsg implements grpc.ServerStream.
func (s *boundStream) SendMsg(message any) error {
	if s.binds != nil && !s.bound.Load() {
		return statusOf(errUnbound)
	}
	return s.ServerStream.SendMsg(message)
}

// ended is an error for a stream that ended before its first message came.
func (s *boundStream) ended(err error) error {
	if err == nil && s.binds != nil && !s.bound.Load() {
		return errUnbound
	}
	return err
}

// object is what the first message is about; empty before it came.
func (s *boundStream) object() string {
	about, _ := s.about.Load().(string)
	return about
}
