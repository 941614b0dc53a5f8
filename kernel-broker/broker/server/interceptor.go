// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
)

// grace is what a stream's handler gets, once its time is up or its client
// gone, to end with an error of its own.
const grace = 100 * time.Millisecond

// interceptor is what every call passes: authentication, quotas, authorization, the
// record, the log, and the making of status codes.
type interceptor struct {
	access     access
	verifier   *credential.Verifier
	authorizer *authz.Authorizer
	quotas     *quotas
	// mayEnrol returns why a token would not count, and changes nothing; nil where TLS is off.
	mayEnrol func(ctx context.Context, node, secret string, request []byte) error
	// showsOthers is Options.ShowsOthers.
	showsOthers func(ctx context.Context, uid uint32) bool
	log         *slog.Logger
}

func (g *interceptor) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
	err = g.pass(ctx, info.FullMethod, request, func(ctx context.Context, c *call) error {
		if err := validate(request); err != nil {
			return err
		}
		if err := checkSender(ctx, request); err != nil {
			return err
		}
		done, err := g.quotas.listing(ctx, info.FullMethod, c.caller)
		if err != nil {
			return err
		}
		defer done()
		response, err = handle(ctx, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (g *interceptor) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return g.pass(s.Context(), info.FullMethod, nil, func(ctx context.Context, c *call) error {
		checked := &callStream{ServerStream: s, ctx: ctx, binds: c.binds}
		if info.FullMethod == api.NodeService_Connect_FullMethodName {
			allowed := g.quotas.limits.Nodes
			checked.pace = rate.NewLimiter(rate.Limit(allowed.PerSecond), allowed.Burst)
		}
		defer func() { c.decision.Object = checked.object() }()
		// A handler that waits for its client does not see the time limit.
		// Returning from here ends the stream and with it that wait.
		ended := make(chan error, 1)
		go func() {
			ended <- g.catch(info.FullMethod, func() error { return checked.ended(handle(server, checked)) })
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
func (g *interceptor) pass(ctx context.Context, method string, request any, handle func(context.Context, *call) error) error {
	begin := time.Now()
	if limit := rules[method].limit; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	c, err := g.admit(ctx, method, request)
	if err == nil {
		defer c.done()
		ctx = g.withVisibility(withCaller(ctx, c.caller), c.caller)
		err = g.catch(method, func() error { return handle(ctx, c) })
		if missed := c.note(err); missed != nil {
			// What was done is done, and its decision is on record.
			g.log.Error("outcome not on record", "method", method, "caller", c.caller.String(), "error", missed)
		}
	}
	err = statusOf(err)
	if !c.quiet {
		g.note(method, c.caller, time.Since(begin), err)
	}
	return err
}

// catch turns a panic into an error, so that one bad call does not end the
// broker in the middle of everybody's switches.
func (g *interceptor) catch(method string, call func() error) (err error) {
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
func (g *interceptor) note(method string, caller Caller, took time.Duration, err error) {
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
