package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// grace is what a stream's handler gets, once its time is up or its client
// gone, to end with an error of its own.
const grace = 100 * time.Millisecond

// gate is what each call passes on its way in and out: the panic catcher, the
// log, the door, the time limit, and the making of status codes.
type gate struct {
	door door
	log  *slog.Logger
}

func (g *gate) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
	err = g.pass(ctx, info.FullMethod, func(ctx context.Context) error {
		if err := validate(request); err != nil {
			return err
		}
		response, err = handle(ctx, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (g *gate) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return g.pass(s.Context(), info.FullMethod, func(ctx context.Context) error {
		// A handler that waits for its client does not see the time limit.
		// Returning from here ends the stream and with it that wait.
		ended := make(chan error, 1)
		go func() {
			ended <- g.catch(info.FullMethod, func() error {
				return handle(server, &checkedStream{ServerStream: s, ctx: ctx})
			})
		}()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(grace):
			return ctx.Err()
		}
	})
}

// pass runs one call and returns a status error or nil.
func (g *gate) pass(ctx context.Context, method string, call func(context.Context) error) error {
	caller, begin := CallerOf(ctx), time.Now()
	err := g.door.check(method, caller)
	if err == nil {
		if limit := rules[method].limit; limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		err = g.catch(method, func() error { return call(ctx) })
	}
	err = statusOf(err)
	g.note(method, caller, time.Since(begin), err)
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
	case codes.PermissionDenied, codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
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
