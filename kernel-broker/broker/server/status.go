// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// statusCodes is the one place where errors of the domain get their codes. The
// first that fits counts.
var statusCodes = []struct {
	err  error
	code codes.Code
}{
	{kb.ErrInvalid, codes.InvalidArgument},
	{kb.ErrNotFound, codes.NotFound},
	{kb.ErrExists, codes.AlreadyExists},
	{kb.ErrQuarantined, codes.FailedPrecondition},
	{kb.ErrRetired, codes.FailedPrecondition},
	{kb.ErrFailedPrecondition, codes.FailedPrecondition},
	{kb.ErrDenied, codes.PermissionDenied},
	{kb.ErrUnauthenticated, codes.Unauthenticated},
	{kb.ErrUnavailable, codes.Unavailable},
	{kb.ErrExhausted, codes.ResourceExhausted},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// statusOf makes what goes over the wire of an error. The text stays: it names
// the object, and those who may call are the ones it is for. An error that is
// a status already stays as it is; one that nobody foresaw is Internal.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	var retry *kb.RetryableError
	if errors.As(err, &retry) && (errors.Is(err, kb.ErrExhausted) || errors.Is(err, kb.ErrUnavailable)) {
		return retryLater(retry.Wait, err.Error())
	}
	var made interface{ GRPCStatus() *status.Status }
	if errors.As(err, &made) {
		return status.Error(made.GRPCStatus().Code(), made.GRPCStatus().Message())
	}
	for _, known := range statusCodes {
		if errors.Is(err, known.err) {
			return status.Error(known.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// retryLater is the status of a call that may be made again after a while, with
// the detail that clients of gRPC know to look for.
func retryLater(wait time.Duration, text string) error {
	plain := status.New(codes.ResourceExhausted, text)
	detailed, err := plain.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		return plain.Err()
	}
	return detailed.Err()
}
