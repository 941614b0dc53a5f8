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

// RetryAfter returns when a call that was refused for taking too much may be
// made again, if the broker said so.
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

// comeBackMost bounds how often a call is made again: the broker's word is kept
// to, but not for ever.
const comeBackMost = 5

// comeBack makes a call again when the broker said to, as long as there is time
// for it. It stands before what proves the call: each try needs its own proof.
func comeBack(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	for try := 1; ; try++ {
		err := invoke(ctx, method, request, reply, conn, o...)
		wait, said := RetryAfter(err)
		if !said || try > comeBackMost {
			return err
		}
		if end, has := ctx.Deadline(); has && time.Until(end) <= wait {
			return err // which says more than that time is up
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
