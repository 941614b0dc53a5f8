// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
)

// Catalog is what the service needs of the catalog. Errors are the domain's.
type Catalog interface {
	List(ctx context.Context) ([]kb.Profile, error)
	Get(ctx context.Context, name string) (kb.Profile, error)
	Check(ctx context.Context, ref kb.Ref) (kb.ProfileVersion, error)
	Apply(ctx context.Context, requestID string, profile kb.Profile) (kb.Profile, bool, error)
	ReleaseQuarantine(ctx context.Context, requestID string, ref kb.Ref) error
	Retire(ctx context.Context, requestID string, ref kb.Ref, reason string) (kb.Profile, bool, error)
	Promote(ctx context.Context, requestID string, ref kb.Ref) (kb.Profile, bool, error)
	Quarantine(ctx context.Context, requestID string, ref kb.Ref, reason string) (kb.Profile, bool, error)
	Sign(ctx context.Context, requestID string, ref kb.Ref, envelope []byte) (kb.Profile, bool, error)
	Snapshot(ctx context.Context) (string, error)
}

// catalogService serves the catalog. As in the other services, gRPC drops the response of a call that failed.
type catalogService struct {
	api.UnimplementedCatalogServiceServer
	authorizer *authz.Authorizer
	catalog    Catalog
	artifacts  Artifacts
	maxBytes   uint64
}

func (s *catalogService) ListProfiles(ctx context.Context, _ *api.ListProfilesRequest) (*api.ListProfilesResponse, error) {
	profiles, err := s.catalog.List(ctx)
	response := &api.ListProfilesResponse{}
	for _, p := range profiles {
		response.Profiles = append(response.Profiles, convert.ProfileToProto(p))
	}
	return response, err
}

func (s *catalogService) GetProfile(ctx context.Context, r *api.GetProfileRequest) (*api.GetProfileResponse, error) {
	p, err := s.catalog.Get(ctx, r.GetName())
	return &api.GetProfileResponse{Profile: convert.ProfileToProto(p)}, err
}

func (s *catalogService) CheckProfile(ctx context.Context, r *api.CheckProfileRequest) (*api.CheckProfileResponse, error) {
	ref, err := kb.ParseRef(r.GetProfile())
	if err != nil {
		return nil, err
	}
	v, err := s.catalog.Check(ctx, ref)
	if err != nil {
		return nil, err
	}
	if r.GetProfiling() && v.NoBTF {
		return nil, fmt.Errorf("kernel %q has no type information (BTF), so --kernel-profiling would see nothing on it; profile without --kernel-profile, or on a kernel whose recipe has the fragment profiling: %w",
			v.Kernel.Ref(), kb.ErrFailedPrecondition)
	}
	caller := CallerOf(ctx)
	d, err := s.authorizer.Authorize(ctx, caller.subject(), authz.Use, ref.Profile, nil)
	return &api.CheckProfileResponse{Name: v.Kernel.Profile, Version: v.Kernel.Version, Proviso: d.Proviso}, err
}

func (s *catalogService) ApplyProfile(ctx context.Context, r *api.ApplyProfileRequest) (*api.ApplyProfileResponse, error) {
	p, changed, err := s.catalog.Apply(changing(ctx, r), r.GetRequestId(), convert.ProfileFromProto(r.GetProfile()))
	return &api.ApplyProfileResponse{Profile: convert.ProfileToProto(p), Changed: changed}, err
}

func (s *catalogService) ReleaseQuarantine(ctx context.Context, r *api.ReleaseQuarantineRequest) (*api.ReleaseQuarantineResponse, error) {
	return &api.ReleaseQuarantineResponse{}, s.catalog.ReleaseQuarantine(changing(ctx, r), r.GetRequestId(), refOf(r))
}

func (s *catalogService) RetireProfile(ctx context.Context, r *api.RetireProfileRequest) (*api.RetireProfileResponse, error) {
	p, changed, err := s.catalog.Retire(changing(ctx, r), r.GetRequestId(), refOf(r), r.GetReason())
	return &api.RetireProfileResponse{Profile: convert.ProfileToProto(p), Changed: changed}, err
}

func (s *catalogService) PromoteVersion(ctx context.Context, r *api.PromoteVersionRequest) (*api.PromoteVersionResponse, error) {
	p, changed, err := s.catalog.Promote(by(ctx, r.GetReason()), r.GetRequestId(), refOf(r))
	return &api.PromoteVersionResponse{Profile: convert.ProfileToProto(p), Changed: changed}, err
}

func (s *catalogService) QuarantineVersion(ctx context.Context, r *api.QuarantineVersionRequest) (*api.QuarantineVersionResponse, error) {
	p, changed, err := s.catalog.Quarantine(by(ctx, r.GetReason()), r.GetRequestId(), refOf(r), r.GetReason())
	return &api.QuarantineVersionResponse{Profile: convert.ProfileToProto(p), Changed: changed}, err
}

func (s *catalogService) SignVersion(ctx context.Context, r *api.SignVersionRequest) (*api.SignVersionResponse, error) {
	p, changed, err := s.catalog.Sign(by(ctx, r.GetReason()), r.GetRequestId(), refOf(r), r.GetEnvelope())
	return &api.SignVersionResponse{Profile: convert.ProfileToProto(p), Changed: changed}, err
}

// refOf is the version of a profile that a request names.
func refOf(r interface {
	GetName() string
	GetVersion() uint32
}) kb.Ref {
	return kb.Ref{Profile: r.GetName(), Version: r.GetVersion()}
}

// changing is the context of a change: who asks for it, why, and whether it is a dry run.
func changing(ctx context.Context, r interface{ GetReason() string }) context.Context {
	ctx = by(ctx, r.GetReason())
	if isDryRun(r) {
		ctx = kb.WithDryRun(ctx)
	}
	return ctx
}

// isDryRun reports whether a request changes nothing, whatever its method does.
func isDryRun(request any) bool {
	r, ok := request.(interface{ GetDryRun() bool })
	return ok && r.GetDryRun()
}

// by notes who calls, and why, for the record of what the call changes.
func by(ctx context.Context, reason string) context.Context {
	caller := CallerOf(ctx)
	who := caller.String()
	if caller.Known() {
		// The process id means nothing in a record.
		who = fmt.Sprintf("uid %d", caller.UID)
		if u, err := user.LookupId(fmt.Sprint(caller.UID)); err == nil {
			who = fmt.Sprintf("%s (uid %d)", u.Username, caller.UID)
		}
	}
	return kb.WithAuthor(ctx, who, reason)
}

func (s *catalogService) GetSnapshot(ctx context.Context, _ *api.GetSnapshotRequest) (*api.GetSnapshotResponse, error) {
	text, err := s.catalog.Snapshot(ctx)
	return &api.GetSnapshotResponse{Snapshot: text}, err
}

// chunkSize of what is sent to agents.
const chunkSize = 128 << 10

// Artifacts are the files behind the catalog; *artifact.Store has them.
type Artifacts interface {
	Put(ctx context.Context, digest string, size uint64, source io.Reader) (stored bool, err error)
	Stat(digest string) (artifact.Entry, error)
	Open(ctx context.Context, digest string) (*os.File, error)
	List(ctx context.Context) (files []artifact.Stored, used, limit uint64, err error)
	Collect(ctx context.Context, dryRun bool) (removed []artifact.Stored, err error)
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
	stored, err := s.artifacts.Put(stream.Context(), u.digest, u.size, &chunkReader{rest: first.GetData(), next: func() ([]byte, error) {
		message, err := stream.Recv()
		if err == nil && (message.GetDigest() != "" || message.GetSize() != 0 || message.GetOffset() != 0) {
			err = fmt.Errorf("upload names a digest, size or offset after its first message: %w", kb.ErrInvalid)
		}
		return message.GetData(), err
	}})
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
	case u.offset > 0:
		// Clients that asked an earlier version of the broker for what it had received start again after this code.
		return status.Errorf(codes.Aborted, "%s: nothing is kept of a broken upload, begin at the first byte", u.what)
	}
	return kb.ValidateDigest(u.digest)
}

// chunkReader reads the bytes of an upload, and no messages without any, of which there could be many.
type chunkReader struct {
	next func() ([]byte, error)
	rest []byte
}

func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		data, err := r.next()
		if err == nil && len(data) == 0 {
			err = fmt.Errorf("upload has a message without data after its first one: %w", kb.ErrInvalid)
		}
		if err != nil {
			return 0, err
		}
		r.rest = data
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// GetArtifact implements api.CatalogServiceServer.
func (s *catalogService) GetArtifact(_ context.Context, r *api.GetArtifactRequest) (*api.GetArtifactResponse, error) {
	stored, size, err := stat(s.artifacts, r.GetDigest())
	return &api.GetArtifactResponse{Stored: stored, Size: size}, err
}

// stat reports whether a file is stored, and its size.
func stat(files Artifacts, digest string) (stored bool, size uint64, err error) {
	file, err := files.Stat(digest)
	if errors.Is(err, kb.ErrNotFound) {
		return false, 0, nil
	}
	return err == nil, file.Size, err
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

func artifactsToProto(files []artifact.Stored) []*api.Artifact {
	var out []*api.Artifact
	for _, f := range files {
		out = append(out, &api.Artifact{Digest: f.Digest, Size: f.Size, Used: convert.TimeToProto(f.Used), NeededBy: f.NeededBy})
	}
	return out
}

func (s *catalogService) FetchArtifact(r *api.FetchArtifactRequest, stream api.CatalogService_FetchArtifactServer) (err error) {
	file, err := s.artifacts.Open(stream.Context(), r.GetDigest())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if size := uint64(info.Size()); r.GetOffset() > size {
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
