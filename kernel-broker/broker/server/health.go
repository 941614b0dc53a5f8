// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

const (
	// healthLimit is how long looking at all components may take.
	healthLimit = 5 * time.Second
	// healthPause lies between two looks for those who watch.
	healthPause = 5 * time.Second
)

// Component is one thing that the broker leans on.
type Component struct {
	Name    string
	Healthy bool
	Detail  string
}

// healthOf looks at every component now.
type healthOf struct {
	api.UnimplementedHealthServiceServer
	look    func(context.Context) []Component
	version string
}

// GetHealth implements api.HealthServiceServer.
func (h *healthOf) GetHealth(ctx context.Context, _ *api.GetHealthRequest) (*api.GetHealthResponse, error) {
	components, healthy := h.now(ctx)
	response := &api.GetHealthResponse{Healthy: healthy, Version: h.version}
	for _, c := range components {
		response.Components = append(response.Components,
			&api.Component{Name: c.Name, Healthy: c.Healthy, Detail: c.Detail})
	}
	return response, nil
}

func (h *healthOf) now(ctx context.Context) ([]Component, bool) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	components := h.look(ctx)
	healthy := true
	for _, c := range components {
		healthy = healthy && c.Healthy
	}
	return components, healthy
}

// standardHealth answers the questions of grpc.health.v1 from the same look.
// The broker is one process, so each of its services is as well as the whole.
type standardHealth struct {
	grpc_health_v1.UnimplementedHealthServer
	health   *healthOf
	services func() []string
}

// Check implements grpc_health_v1.HealthServer.
func (s *standardHealth) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !s.serves(r.GetService()) {
		return nil, status.Errorf(codes.NotFound, "service %q is not served here", r.GetService())
	}
	return s.answer(ctx), nil
}

// List implements grpc_health_v1.HealthServer.
func (s *standardHealth) List(ctx context.Context, _ *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	answer := s.answer(ctx)
	response := &grpc_health_v1.HealthListResponse{Statuses: map[string]*grpc_health_v1.HealthCheckResponse{"": answer}}
	for _, name := range s.services() {
		response.Statuses[name] = answer
	}
	return response, nil
}

// Watch implements grpc_health_v1.HealthServer.
func (s *standardHealth) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	last := grpc_health_v1.HealthCheckResponse_UNKNOWN
	ticker := time.NewTicker(healthPause)
	defer ticker.Stop()
	for {
		answer := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN}
		if s.serves(r.GetService()) {
			answer = s.answer(stream.Context())
		}
		if answer.GetStatus() != last {
			if err := stream.Send(answer); err != nil {
				return err
			}
			last = answer.GetStatus()
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-ticker.C:
		}
	}
}

func (s *standardHealth) serves(service string) bool {
	if service == "" {
		return true
	}
	for _, name := range s.services() {
		if name == service {
			return true
		}
	}
	return false
}

func (s *standardHealth) answer(ctx context.Context) *grpc_health_v1.HealthCheckResponse {
	if _, healthy := s.health.now(ctx); healthy {
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}
}
