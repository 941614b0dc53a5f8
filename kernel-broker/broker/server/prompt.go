// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// promptStream ends a stream whose client lets it wait: for a message that is
// due, or by not taking one. Every stream has its messages in turn or at set
// times; agents send one every few seconds.
type promptStream struct {
	grpc.ServerStream
	ctx   context.Context
	end   context.CancelCauseFunc
	limit time.Duration
	first bool
	pace  *rate.Limiter // of messages that come; nil: none
}

func (s *promptStream) within(limit time.Duration, what string, do func() error) error {
	timer := time.AfterFunc(limit, func() { s.end(fmt.Errorf("%s within %v: %w", what, limit, context.DeadlineExceeded)) })
	defer timer.Stop()
	return do()
}

// RecvMsg implements grpc.ServerStream.
func (s *promptStream) RecvMsg(message any) error {
	limit := s.limit
	if !s.first {
		s.first, limit = true, min(limit, shortly)
	}
	if err := s.within(limit, "no message came", func() error { return s.ServerStream.RecvMsg(message) }); err != nil {
		return err
	}
	if s.pace != nil {
		return s.pace.Wait(s.ctx)
	}
	return nil
}

// SendMsg implements grpc.ServerStream.
func (s *promptStream) SendMsg(message any) error {
	return s.within(s.limit, "a message was not taken", func() error { return s.ServerStream.SendMsg(message) })
}

// prompt makes one of a call's stream.
func (s *shares) prompt(ctx context.Context, end context.CancelCauseFunc, method string, stream grpc.ServerStream) *promptStream {
	p := &promptStream{ServerStream: stream, ctx: ctx, end: end, limit: s.limits.Patience}
	if method == api.NodeService_Connect_FullMethodName {
		p.pace = rate.NewLimiter(rate.Limit(s.limits.Nodes.PerSecond), s.limits.Nodes.Burst)
	}
	return p
}
