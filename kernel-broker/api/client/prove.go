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

// Encoder has a text vouched for in the name of whoever runs this program.
type Encoder = credential.Encoder

// Prove has every call carry a fresh proof of who makes it, bound to the call.
// It is for the network; on the broker's host the socket proves it.
func Prove(encoder Encoder, cluster string) []grpc.DialOption {
	p := prover{encoder, cluster}
	// Chained, and so inside of what makes a call again.
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(p.unary), grpc.WithChainStreamInterceptor(p.stream)}
}

type prover struct {
	encoder Encoder
	cluster string
}

// with returns the context of a call that has its proof.
func (p prover) with(ctx context.Context, method string, message any) (context.Context, error) {
	m, _ := message.(proto.Message)
	text, err := credential.Make(ctx, p.encoder, p.cluster, method, m)
	if err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "MUNGE does not vouch for you, without which the broker knows nobody over the network: %v", err)
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

// stream puts the begin of a stream off until its first message is there, which
// the proof is bound to and which goes behind it.
func (p prover) stream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	return &lateStream{ctx: ctx, many: d.ClientStreams, begin: func(message any) (grpc.ClientStream, error) {
		ctx, err := p.with(ctx, method, message)
		if err != nil {
			return nil, err
		}
		return begin(ctx, d, conn, method, o...)
	}}, nil
}

// lateStream is a stream that begins with its first message.
type lateStream struct {
	ctx   context.Context
	many  bool // messages may follow the first one
	begin func(message any) (grpc.ClientStream, error)

	once   sync.Once
	stream grpc.ClientStream
	err    error
}

func (s *lateStream) with(message any) (grpc.ClientStream, error) {
	s.once.Do(func() { s.stream, s.err = s.begin(message) })
	return s.stream, s.err
}

// SendMsg implements grpc.ClientStream. Like gRPC's own streams it says io.EOF
// of one that has failed, and RecvMsg says why; but where there is one message
// only, it says so at once.
func (s *lateStream) SendMsg(message any) error {
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
func (s *lateStream) RecvMsg(message any) error {
	stream, err := s.with(nil)
	if err != nil {
		return err
	}
	return stream.RecvMsg(message)
}

// CloseSend implements grpc.ClientStream.
func (s *lateStream) CloseSend() error {
	stream, err := s.with(nil)
	if err != nil {
		return nil //nolint:nilerr // as with gRPC's own streams, RecvMsg says why
	}
	return stream.CloseSend()
}

// Header implements grpc.ClientStream.
func (s *lateStream) Header() (metadata.MD, error) {
	stream, err := s.with(nil)
	if err != nil {
		return nil, err
	}
	return stream.Header()
}

// Trailer implements grpc.ClientStream.
func (s *lateStream) Trailer() metadata.MD {
	if s.stream == nil {
		return nil
	}
	return s.stream.Trailer()
}

// Context implements grpc.ClientStream.
func (s *lateStream) Context() context.Context {
	if s.stream == nil {
		return s.ctx
	}
	return s.stream.Context()
}
