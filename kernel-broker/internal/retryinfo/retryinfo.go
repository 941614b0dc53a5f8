// SPDX-License-Identifier: Apache-2.0

// Package retryinfo says with a refusal when the same call may be made again, as
// google.rpc.RetryInfo in the status, and reads that.
package retryinfo

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Error is the status of a call that was refused for overload and may be made again
// after a while.
func Error(wait time.Duration, text string) error {
	plain := status.New(codes.ResourceExhausted, text)
	detailed, err := plain.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		return plain.Err()
	}
	return detailed.Err()
}

// After returns the wait before a call refused for overload may be repeated, if the
// broker gave one.
func After(err error) (wait time.Duration, said bool) {
	made, ok := status.FromError(err)
	if !ok || made.Code() != codes.ResourceExhausted {
		return 0, false
	}
	for _, detail := range made.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	return 0, false
}
