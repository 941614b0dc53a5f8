// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// calls are the broker's services.
type calls struct {
	nodes    api.NodeServiceClient
	jobs     api.AllocationServiceClient
	catalog  api.CatalogServiceClient
	runs     api.RunServiceClient
	hardware api.HardwareServiceClient
	health   api.HealthServiceClient
	events   api.EventServiceClient
}

func newCalls(c grpc.ClientConnInterface) calls {
	return calls{api.NewNodeServiceClient(c), api.NewAllocationServiceClient(c), api.NewCatalogServiceClient(c),
		api.NewRunServiceClient(c), api.NewHardwareServiceClient(c), api.NewHealthServiceClient(c), api.NewEventServiceClient(c)}
}

// call makes one call within the limit.
func call[Q, R any](ctx context.Context, method func(context.Context, Q, ...grpc.CallOption) (R, error), request Q) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return method(ctx, request)
}

// errNoPage is an address that the page does not have.
var errNoPage = errors.New("there is no such page")

// explain returns what a browser and its reader are told of an error.
func (s *Server) explain(err error) (code int, title, text string) {
	switch {
	case errors.Is(err, errNoPage):
		return http.StatusNotFound, "No such page", "There is nothing at this address."
	case errors.Is(err, kb.ErrNotFound), errors.Is(err, kb.ErrInvalid):
		return http.StatusNotFound, "Not found", err.Error()
	case errors.Is(err, kb.ErrDenied), errors.Is(err, kb.ErrFailedPrecondition):
		return http.StatusForbidden, "Refused", err.Error()
	}
	text = status.Convert(err).Message()
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument:
		return http.StatusNotFound, "Not found", text
	case codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition:
		return http.StatusForbidden, "Refused", text
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return http.StatusServiceUnavailable, "The broker does not answer", fmt.Sprintf("The broker at %s does not answer: %s", s.o.Source.Address, text)
	}
	return http.StatusInternalServerError, "Error", text
}
