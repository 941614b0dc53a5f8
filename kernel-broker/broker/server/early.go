// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
)

// Server is a gRPC server that reads no request before its caller may make it. gRPC's
// own calls an interceptor only when a call's one request is in memory and decoded.
type Server struct {
	*grpc.Server
	interceptor *interceptor
	network     *network // nil where TLS is off
}

// Stop ends all connections, those in their handshake, too, for which gRPC would wait.
func (s *Server) Stop() {
	if s.network != nil {
		s.network.handshakes.close()
	}
	s.Server.Stop()
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(service *grpc.ServiceDesc, implementation any) {
	early := *service
	early.Methods = slices.Clone(service.Methods)
	for i, m := range early.Methods {
		early.Methods[i].Handler = s.interceptor.early("/"+service.ServiceName+"/"+m.MethodName, m.Handler)
	}
	s.Server.RegisterService(&early, implementation)
}

var errLate = fmt.Errorf("the request has not come in time: %w", context.DeadlineExceeded)

// early identifies the caller, and has the request read if that caller may make it.
func (g *interceptor) early(method string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(service any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		who := identity{}
		who.caller, who.binds, who.err = g.identify(ctx, method)
		refuse := func(err error) (any, error) { // and records it
			who.err = err
			return intercept(withIdentity(ctx, who), nil, &grpc.UnaryServerInfo{Server: service, FullMethod: method}, nil)
		}
		if who.err != nil {
			return refuse(who.err)
		}
		if !who.caller.Known() {
			if err := g.access.check(method, who.caller); err != nil {
				return refuse(err)
			}
		}
		late := false
		response, err := handle(service, withIdentity(ctx, who), func(request any) error {
			came := make(chan error, 1)
			go func() { came <- read(request) }() // ends with the call
			select {
			case err := <-came:
				return err
			case <-time.After(g.quotas.limits.Arrival):
				late = true
				return errLate
			}
		}, intercept)
		if late {
			return refuse(errLate)
		}
		return response, err
	}
}

// identity is what identify returned.
type identity struct {
	caller Caller
	binds  func(any) error
	err    error
}

type identityKey struct{}

func withIdentity(ctx context.Context, who identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// identified is who calls, if early asked already.
func (g *interceptor) identified(ctx context.Context, method string) (Caller, func(any) error, error) {
	if who, ok := ctx.Value(identityKey{}).(identity); ok {
		return who.caller, who.binds, who.err
	}
	return g.identify(ctx, method)
}
