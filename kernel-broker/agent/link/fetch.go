// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Fetch opens the bytes of an artifact. Reading ends with an error that wraps ErrUnavailable when the broker went away,
// and ErrNotFound when it does not have the artifact.
func (l *Link) Fetch(ctx context.Context, digest string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := api.NewCatalogServiceClient(l.conn).FetchArtifact(ctx, &api.FetchArtifactRequest{Digest: digest})
	if err != nil {
		cancel()
		return nil, fetchError(digest, err)
	}
	return &artifactReader{digest: digest, stream: stream, cancel: cancel}, nil
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

// fetchError returns the domain's error.
func fetchError(digest string, err error) error {
	kind := kindOf(err)
	switch status.Code(err) {
	case codes.Canceled:
		kind = context.Canceled
	case codes.NotFound:
		kind = kb.ErrNotFound
	}
	return fmt.Errorf("artifact %q: %w: %w", digest, kind, err)
}

// kindOf is ErrUnavailable for errors of a call that may succeed later, and
// ErrFailedPrecondition for all others.
func kindOf(err error) error {
	if _, isStatus := status.FromError(err); isStatus {
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Canceled, codes.Internal, codes.Unknown:
			return kb.ErrUnavailable
		}
	}
	return kb.ErrFailedPrecondition
}
