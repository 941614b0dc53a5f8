// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"os/user"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
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
	caller := CallerOf(ctx)
	d, err := s.authorizer.Authorize(ctx, caller.subject(), authz.Use, ref.Profile, nil)
	return &api.CheckProfileResponse{Name: v.Kernel.Profile, Version: v.Kernel.Version, Proviso: d.Proviso}, err
}

func (s *catalogService) ApplyProfile(ctx context.Context, r *api.ApplyProfileRequest) (*api.ApplyProfileResponse, error) {
	p, changed, err := s.catalog.Apply(by(ctx, r.GetReason()), r.GetRequestId(), convert.ProfileFromProto(r.GetProfile()))
	return &api.ApplyProfileResponse{Profile: convert.ProfileToProto(p), Changed: changed}, err
}

func (s *catalogService) ReleaseQuarantine(ctx context.Context, r *api.ReleaseQuarantineRequest) (*api.ReleaseQuarantineResponse, error) {
	return &api.ReleaseQuarantineResponse{}, s.catalog.ReleaseQuarantine(by(ctx, r.GetReason()), r.GetRequestId(), refOf(r))
}

func (s *catalogService) RetireProfile(ctx context.Context, r *api.RetireProfileRequest) (*api.RetireProfileResponse, error) {
	p, changed, err := s.catalog.Retire(by(ctx, r.GetReason()), r.GetRequestId(), refOf(r), r.GetReason())
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
