// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

const (
	// healthLimit is how long looking at all components may take.
	healthLimit = 5 * time.Second
	// healthPause lies between two probes for those who watch.
	healthPause = 5 * time.Second
)

// Component is one thing that the broker leans on.
type Component struct {
	Name    string
	Healthy bool
	Detail  string
	// Warning is what somebody should look at although the component works.
	Warning string
}

// healthOf probes every component now.
type healthOf struct {
	api.UnimplementedHealthServiceServer
	probe   func(context.Context) []Component
	version string
}

// GetHealth implements api.HealthServiceServer.
func (h *healthOf) GetHealth(ctx context.Context, _ *api.GetHealthRequest) (*api.GetHealthResponse, error) {
	components, healthy := h.now(ctx)
	response := &api.GetHealthResponse{Healthy: healthy, Version: h.version, Now: timestamppb.Now()}
	for _, c := range components {
		response.Components = append(response.Components,
			&api.Component{Name: c.Name, Healthy: c.Healthy, Detail: c.Detail, Warning: c.Warning})
	}
	return response, nil
}

func (h *healthOf) now(ctx context.Context) ([]Component, bool) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	components := h.probe(ctx)
	healthy := true
	for _, c := range components {
		healthy = healthy && c.Healthy
	}
	return components, healthy
}

// standardHealth answers the questions of grpc.health.v1 from the same probe. The broker is one process, so each of its
// services is as well as the whole.
type standardHealth struct {
	*grpchealth.Server
	health   *healthOf
	services func() map[string]grpc.ServiceInfo
}

func (s *standardHealth) refresh(ctx context.Context) {
	serving := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if _, healthy := s.health.now(ctx); healthy {
		serving = grpc_health_v1.HealthCheckResponse_SERVING
	}
	s.SetServingStatus("", serving)
	for name := range s.services() {
		s.SetServingStatus(name, serving)
	}
}

// Check implements grpc_health_v1.HealthServer.
func (s *standardHealth) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.refresh(ctx)
	return s.Server.Check(ctx, r)
}

// List implements grpc_health_v1.HealthServer.
func (s *standardHealth) List(ctx context.Context, r *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	s.refresh(ctx)
	return s.Server.List(ctx, r)
}

// Watch implements grpc_health_v1.HealthServer.
func (s *standardHealth) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	ctx := stream.Context()
	s.refresh(ctx)
	go func() {
		for ticks := time.Tick(healthPause); ; s.refresh(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-ticks:
			}
		}
	}()
	return s.Server.Watch(r, stream)
}
