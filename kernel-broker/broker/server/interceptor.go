// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
)

// grace is what a stream's handler gets, once its time is up or its client
// gone, to end with an error of its own.
const grace = 100 * time.Millisecond

// gate is what each call passes on its way in and out: the panic catcher, the
// log, the door, the limits, and the making of status codes.
type gate struct {
	door  door
	proof *credential.Verifier
	guard *authz.Guard
	// shares keeps one caller from taking what is for all.
	shares *shares
	// vets look at requests of strangers before they are on record; by method.
	vets map[string]vet
	// showsOthers is Options.ShowsOthers.
	showsOthers func(ctx context.Context, uid uint32) bool
	log         *slog.Logger
}

// vet returns why a service would refuse a request, and changes nothing. Of one
// that it would not, it returns whom changes are counted for besides the caller.
type vet func(ctx context.Context, request any) (of string, err error)

func (g *gate) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
	err = g.pass(ctx, info.FullMethod, request, func(ctx context.Context, a *admission) error {
		if err := validate(request); err != nil {
			return err
		}
		free, err := g.shares.listing(ctx, info.FullMethod, a.caller)
		if err != nil {
			return err
		}
		defer free()
		response, err = handle(ctx, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (g *gate) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return g.pass(s.Context(), info.FullMethod, nil, func(ctx context.Context, a *admission) error {
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		bound := &boundStream{ServerStream: g.shares.prompt(ctx, end, info.FullMethod, s), binds: a.binds}
		defer func() { a.decision.Object = bound.object() }()
		// A handler that waits for its client does not see the time limit.
		// Returning from here ends the stream and with it that wait.
		ended := make(chan error, 1)
		go func() {
			ended <- g.catch(info.FullMethod, func() error {
				return bound.ended(handle(server, &checkedStream{ServerStream: bound, ctx: ctx}))
			})
		}()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
		}
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				return err
			}
		case <-time.After(grace):
		}
		return context.Cause(ctx)
	})
}

// pass runs one call and returns a status error or nil. The request is nil for
// streams, whose first message is yet to come.
func (g *gate) pass(ctx context.Context, method string, request any, call func(context.Context, *admission) error) error {
	begin := time.Now()
	admitted, err := g.admit(ctx, method, request)
	if err == nil {
		defer admitted.leave()
		ctx = g.withSight(withCaller(ctx, admitted.caller), admitted.caller)
		err = g.catch(method, func() error { return call(ctx, admitted) })
		if missed := admitted.note(err); missed != nil {
			// What was done is done, and its decision is on record.
			g.log.Error("outcome not on record", "method", method, "caller", admitted.caller.String(), "error", missed)
		}
	}
	err = statusOf(err)
	if !admitted.quiet {
		g.note(method, admitted.caller, time.Since(begin), err)
	}
	return err
}

// catch turns a panic into an error, so that one bad call does not end the
// broker in the middle of everybody's switches.
func (g *gate) catch(method string, call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			g.log.Error("call panicked", "method", method, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error, see the broker's log")
		}
	}()
	return call()
}

// note logs what a person would want to see: faults of the broker as errors,
// refusals as warnings, the rest for debugging.
func (g *gate) note(method string, caller Caller, took time.Duration, err error) {
	code := status.Code(err)
	level := slog.LevelDebug
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		level = slog.LevelError
	case codes.PermissionDenied, codes.Unauthenticated, codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		level = slog.LevelWarn
	}
	fields := []any{"method", method, "caller", caller.String(), "code", code.String(), "took", took.Round(time.Microsecond).String()}
	if err != nil {
		fields = append(fields, "error", status.Convert(err).Message())
	}
	g.log.Log(context.Background(), level, "call", fields...)
}

// checkedStream validates each message that comes in and carries the limited
// context.
type checkedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *checkedStream) Context() context.Context { return s.ctx }

func (s *checkedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if err := validate(message); err != nil {
		return statusOf(err)
	}
	return nil
}
