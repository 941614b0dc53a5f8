// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
)

// Encoder signs a text in the name of the current user.
type Encoder = credential.Encoder

// prover adds a fresh proof of the caller's identity to every call, bound to the call.
type prover struct {
	encoder Encoder
	cluster string
	// socket: the connection may be to the local socket, where calls need no proof, and no munged.
	socket bool
}

func (p prover) options() []grpc.DialOption {
	// Chained, and so inside of the retries.
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(p.unary), grpc.WithChainStreamInterceptor(p.stream)}
}

// with returns the context of a call that has its proof.
func (p prover) with(ctx context.Context, method string, message any) (context.Context, error) {
	m, _ := message.(proto.Message)
	text, err := credential.Make(ctx, p.encoder, p.cluster, method, m)
	if err != nil && p.socket {
		return ctx, nil
	}
	if err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "MUNGE authentication failed; calls over the network require it: %v", err)
	}
	return metadata.AppendToOutgoingContext(ctx, credential.Header, text), nil
}

func (p prover) unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	ctx, err := p.with(ctx, method, request)
	if err != nil {
		return err
	}
	return invoke(ctx, method, request, reply, conn, o...)
}

// stream delays the start of a stream until its first message, which the proof is bound to.
func (p prover) stream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	return &deferredStream{ctx: ctx, many: d.ClientStreams, begin: func(message any) (grpc.ClientStream, error) {
		ctx, err := p.with(ctx, method, message)
		if err != nil {
			return nil, err
		}
		return begin(ctx, d, conn, method, o...)
	}}, nil
}

// deferredStream is a stream that starts with its first message.
type deferredStream struct {
	ctx   context.Context
	many  bool // messages may follow the first one
	begin func(message any) (grpc.ClientStream, error)

	once   sync.Once
	stream grpc.ClientStream
	err    error
}

func (s *deferredStream) with(message any) (grpc.ClientStream, error) {
	s.once.Do(func() { s.stream, s.err = s.begin(message) })
	return s.stream, s.err
}

// SendMsg implements grpc.ClientStream. Like gRPC's own streams it returns io.EOF for a failed one, and RecvMsg returns
// the reason; but for a single message it returns the reason at once.
func (s *deferredStream) SendMsg(message any) error {
	stream, err := s.with(message)
	if err != nil && s.many {
		return io.EOF
	}
	if err != nil {
		return err
	}
	return stream.SendMsg(message)
}

// RecvMsg implements grpc.ClientStream.
func (s *deferredStream) RecvMsg(message any) error {
	stream, err := s.with(nil)
	if err != nil {
		return err
	}
	return stream.RecvMsg(message)
}

// CloseSend implements grpc.ClientStream.
func (s *deferredStream) CloseSend() error {
	stream, err := s.with(nil)
	if err != nil {
		return nil //nolint:nilerr // as with gRPC's own streams, RecvMsg returns the reason
	}
	return stream.CloseSend()
}

// Header implements grpc.ClientStream.
func (s *deferredStream) Header() (metadata.MD, error) {
	stream, err := s.with(nil)
	if err != nil {
		return nil, err
	}
	return stream.Header()
}

// Trailer implements grpc.ClientStream.
func (s *deferredStream) Trailer() metadata.MD {
	if s.stream == nil {
		return nil
	}
	return s.stream.Trailer()
}

// Context implements grpc.ClientStream.
func (s *deferredStream) Context() context.Context {
	if s.stream == nil {
		return s.ctx
	}
	return s.stream.Context()
}
