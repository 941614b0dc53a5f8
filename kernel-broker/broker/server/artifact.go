// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// chunkSize of what is sent to agents.
const chunkSize = 128 << 10

// Artifacts is what the service needs of the files behind the catalog. Errors
// are the domain's.
type Artifacts interface {
	// Put stores what source yields, from offset on, under digest. It takes
	// nothing over when the bytes have another size or digest
	// (kb.ErrInvalid), and returns false, perhaps without reading,
	// when the digest is there.
	Put(ctx context.Context, digest string, size, offset uint64, source io.Reader) (stored bool, err error)
	// State tells whether a file is stored, and its size, or else how many of
	// its bytes have arrived.
	State(ctx context.Context, digest string) (stored bool, size uint64, err error)
	// Open returns a stored file and its size, or kb.ErrNotFound.
	Open(ctx context.Context, digest string) (file io.ReadSeekCloser, size uint64, err error)
	// List returns all files, what they take together, and the limit of that.
	List(ctx context.Context) (files []Artifact, used, limit uint64, err error)
	// Collect removes what nothing needs, or only says what that is.
	Collect(ctx context.Context, dryRun bool) (removed []Artifact, err error)
}

// Artifact is a file behind the catalog with what needs it.
type Artifact struct {
	Digest   string
	Size     uint64
	Used     time.Time
	NeededBy []string
	Partial  bool
}

func (s *catalogService) UploadArtifact(stream api.CatalogService_UploadArtifactServer) error {
	first, err := firstOf(stream.Recv)
	if err != nil {
		return err
	}
	u := upload{what: "artifact " + strconv.Quote(first.GetDigest()), digest: first.GetDigest(), size: first.GetSize(), offset: first.GetOffset()}
	if err := u.check(s.maxBytes); err != nil {
		return err
	}
	stored, err := u.put(stream.Context(), s.artifacts, first.GetData(), func() ([]byte, error) {
		message, err := stream.Recv()
		if err == nil && (message.GetDigest() != "" || message.GetSize() != 0 || message.GetOffset() != 0) {
			err = fmt.Errorf("upload names a digest, size or offset after its first message: %w", kb.ErrInvalid)
		}
		return message.GetData(), err
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&api.UploadArtifactResponse{Stored: stored})
}

// firstOf is the first message of an upload.
func firstOf[M any](receive func() (M, error)) (M, error) {
	first, err := receive()
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("upload without a first message: %w", kb.ErrInvalid)
	}
	return first, err
}

// upload is what the first message of an upload announces.
type upload struct {
	what         string // for errors
	digest       string
	size, offset uint64
}

func (u upload) check(most uint64) error {
	switch {
	case u.size > most:
		return status.Errorf(codes.ResourceExhausted, "%s has %d bytes, at most %d are allowed", u.what, u.size, most)
	case u.offset > u.size:
		return status.Errorf(codes.OutOfRange, "%s has %d bytes, offset %d is past them", u.what, u.size, u.offset)
	}
	return kb.ValidateDigest(u.digest)
}

// put stores what the messages hold.
func (u upload) put(ctx context.Context, to Artifacts, data []byte, next func() ([]byte, error)) (stored bool, err error) {
	source := &chunkReader{rest: data, left: u.size - u.offset, next: next}
	stored, err = to.Put(ctx, u.digest, u.size, u.offset, source)
	if source.err != nil {
		// What went wrong in the stream tells more than what Put made of it.
		err = source.err
	}
	return stored, err
}

// chunkReader reads the bytes of an upload, never more than were announced, and
// no messages without any, of which there could be many.
type chunkReader struct {
	next func() ([]byte, error)
	rest []byte
	left uint64
	err  error
}

func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		data, err := r.next()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err == nil && len(data) == 0 {
			err = fmt.Errorf("upload has a message without data after its first one: %w", kb.ErrInvalid)
		}
		if err != nil {
			r.err = err
			return 0, err
		}
		r.rest = data
	}
	if uint64(len(r.rest)) > r.left {
		r.err = fmt.Errorf("upload has more bytes than it announced: %w", kb.ErrInvalid)
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest, r.left = r.rest[n:], r.left-uint64(n)
	return n, nil
}

// GetArtifact implements api.CatalogServiceServer.
func (s *catalogService) GetArtifact(ctx context.Context, r *api.GetArtifactRequest) (*api.GetArtifactResponse, error) {
	stored, size, err := s.artifacts.State(ctx, r.GetDigest())
	return &api.GetArtifactResponse{Stored: stored, Size: size}, err
}

// ListArtifacts implements api.CatalogServiceServer.
func (s *catalogService) ListArtifacts(ctx context.Context, _ *api.ListArtifactsRequest) (*api.ListArtifactsResponse, error) {
	files, used, limit, err := s.artifacts.List(ctx)
	return &api.ListArtifactsResponse{Artifacts: artifactsToProto(files), UsedBytes: used, LimitBytes: limit}, err
}

// CollectArtifacts implements api.CatalogServiceServer.
func (s *catalogService) CollectArtifacts(ctx context.Context, r *api.CollectArtifactsRequest) (*api.CollectArtifactsResponse, error) {
	removed, err := s.artifacts.Collect(ctx, r.GetDryRun())
	return &api.CollectArtifactsResponse{Removed: artifactsToProto(removed)}, err
}

func artifactsToProto(files []Artifact) []*api.Artifact {
	var out []*api.Artifact
	for _, f := range files {
		out = append(out, &api.Artifact{Digest: f.Digest, Size: f.Size, Used: convert.TimeToProto(f.Used), NeededBy: f.NeededBy, Partial: f.Partial})
	}
	return out
}

func (s *catalogService) FetchArtifact(r *api.FetchArtifactRequest, stream api.CatalogService_FetchArtifactServer) (err error) {
	file, size, err := s.artifacts.Open(stream.Context(), r.GetDigest())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if r.GetOffset() > size {
		return status.Errorf(codes.OutOfRange, "artifact %q has %d bytes, offset %d is past them",
			r.GetDigest(), size, r.GetOffset())
	}
	if _, err := file.Seek(int64(r.GetOffset()), io.SeekStart); err != nil {
		return fmt.Errorf("artifact %q: %w", r.GetDigest(), err)
	}
	buffer := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(file, buffer)
		if n > 0 {
			// The buffer may be reused: Send has encoded it when it returns.
			if err := stream.Send(&api.FetchArtifactResponse{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("artifact %q: %w", r.GetDigest(), err)
		}
	}
}
