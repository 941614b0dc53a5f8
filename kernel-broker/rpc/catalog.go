package rpc

import (
	"context"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Catalog is what the service needs of the catalog. Errors are the domain's.
type Catalog interface {
	List(ctx context.Context) ([]kernelbroker.Profile, error)
	Get(ctx context.Context, name string) (kernelbroker.Profile, error)
	Check(ctx context.Context, ref kernelbroker.Ref) (kernelbroker.ProfileVersion, error)
	Apply(ctx context.Context, requestID string, profile kernelbroker.Profile) (kernelbroker.Profile, bool, error)
	ReleaseQuarantine(ctx context.Context, requestID string, ref kernelbroker.Ref) error
	Retire(ctx context.Context, requestID string, ref kernelbroker.Ref, reason string) (kernelbroker.Profile, bool, error)
	Snapshot(ctx context.Context) (string, error)
}

type catalogService struct {
	api.UnimplementedCatalogServiceServer
	catalog   Catalog
	artifacts Artifacts
	maxBytes  uint64
}

func (s *catalogService) ListProfiles(ctx context.Context, _ *api.ListProfilesRequest) (*api.ListProfilesResponse, error) {
	profiles, err := s.catalog.List(ctx)
	if err != nil {
		return nil, err
	}
	response := &api.ListProfilesResponse{}
	for _, p := range profiles {
		response.Profiles = append(response.Profiles, ProfileToProto(p))
	}
	return response, nil
}

func (s *catalogService) GetProfile(ctx context.Context, r *api.GetProfileRequest) (*api.GetProfileResponse, error) {
	p, err := s.catalog.Get(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	return &api.GetProfileResponse{Profile: ProfileToProto(p)}, nil
}

func (s *catalogService) CheckProfile(ctx context.Context, r *api.CheckProfileRequest) (*api.CheckProfileResponse, error) {
	ref, err := kernelbroker.ParseRef(r.GetProfile())
	if err != nil {
		return nil, err
	}
	v, err := s.catalog.Check(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &api.CheckProfileResponse{Name: v.Kernel.Profile, Version: v.Kernel.Version}, nil
}

func (s *catalogService) ApplyProfile(ctx context.Context, r *api.ApplyProfileRequest) (*api.ApplyProfileResponse, error) {
	p, changed, err := s.catalog.Apply(ctx, r.GetRequestId(), ProfileFromProto(r.GetProfile()))
	if err != nil {
		return nil, err
	}
	return &api.ApplyProfileResponse{Profile: ProfileToProto(p), Changed: changed}, nil
}

func (s *catalogService) ReleaseQuarantine(ctx context.Context, r *api.ReleaseQuarantineRequest) (*api.ReleaseQuarantineResponse, error) {
	ref := kernelbroker.Ref{Profile: r.GetName(), Version: r.GetVersion()}
	if err := s.catalog.ReleaseQuarantine(ctx, r.GetRequestId(), ref); err != nil {
		return nil, err
	}
	return &api.ReleaseQuarantineResponse{}, nil
}

func (s *catalogService) RetireProfile(ctx context.Context, r *api.RetireProfileRequest) (*api.RetireProfileResponse, error) {
	ref := kernelbroker.Ref{Profile: r.GetName(), Version: r.GetVersion()}
	p, changed, err := s.catalog.Retire(ctx, r.GetRequestId(), ref, r.GetReason())
	if err != nil {
		return nil, err
	}
	return &api.RetireProfileResponse{Profile: ProfileToProto(p), Changed: changed}, nil
}

func (s *catalogService) GetSnapshot(ctx context.Context, _ *api.GetSnapshotRequest) (*api.GetSnapshotResponse, error) {
	text, err := s.catalog.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &api.GetSnapshotResponse{Snapshot: text}, nil
}
