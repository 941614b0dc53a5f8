// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// RetryAfter returns the wait before a call refused for overload may be repeated, if the broker gave one.
func RetryAfter(err error) (wait time.Duration, said bool) {
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

// maxRetries limits the number of retries of a call.
const maxRetries = 5

// retry repeats a call after the wait that the broker gave, within the deadline. It precedes authentication: each try
// needs its own proof.
func retry(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	for try := 1; ; try++ {
		err := invoke(ctx, method, request, reply, conn, o...)
		wait, said := RetryAfter(err)
		if !said || try > maxRetries {
			return err
		}
		if end, has := ctx.Deadline(); has && time.Until(end) <= wait {
			return err // which is more specific than a timeout
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
