// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// ErrOffset: the broker's file ends before the offset asked for.
var ErrOffset = errors.New("offset past the end")

// Fetch opens the bytes of an artifact from an offset on. Reading ends with an
// error that wraps ErrUnavailable when the broker went away, so that the caller
// can go on later from where it is.
func (l *Link) Fetch(ctx context.Context, digest string, offset uint64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := api.NewCatalogServiceClient(l.conn).FetchArtifact(ctx,
		&api.FetchArtifactRequest{Digest: digest, Offset: offset})
	if err != nil {
		cancel()
		return nil, fetchError(digest, err)
	}
	// What is wrong with the request comes with the first message.
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		cancel()
		return io.NopCloser(strings.NewReader("")), nil
	}
	if err != nil {
		cancel()
		return nil, fetchError(digest, err)
	}
	return &artifactReader{digest: digest, stream: stream, cancel: cancel, rest: first.GetData()}, nil
}

type artifactReader struct {
	digest string
	stream grpc.ServerStreamingClient[api.FetchArtifactResponse]
	cancel context.CancelFunc
	rest   []byte
}

func (r *artifactReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		response, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, fetchError(r.digest, err)
		}
		r.rest = response.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *artifactReader) Close() error {
	r.cancel()
	return nil
}

// fetchError turns status codes into the domain's errors; what is neither the
// broker's absence nor our own cancelling is an artifact that cannot be had.
func fetchError(digest string, err error) error {
	kind := kb.ErrFailedPrecondition
	switch status.Code(err) {
	case codes.Canceled:
		kind = context.Canceled
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unknown:
		kind = kb.ErrUnavailable
	case codes.NotFound:
		kind = kb.ErrNotFound
	case codes.OutOfRange:
		kind = ErrOffset
	}
	return fmt.Errorf("artifact %q: %w: %w", digest, kind, err)
}
