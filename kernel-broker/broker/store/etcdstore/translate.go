// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// translate maps etcd's errors to those of package store. Errors that are not known refusals become ErrUnavailable,
// which for a commit means an unknown outcome: the safe side.
func translate(err error) error {
	sentinel := store.ErrUnavailable
	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		sentinel = store.ErrCompacted
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps), isOversized(err):
		sentinel = store.ErrTooLarge
	case errors.Is(err, rpctypes.ErrNoSpace):
		sentinel = store.ErrFull
	case errors.Is(err, rpctypes.ErrDuplicateKey), errors.Is(err, rpctypes.ErrEmptyKey):
		sentinel = store.ErrInvalid
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// isOversized detects gRPC's own limit. etcd uses the same code for "too many requests" and for its quota, with its own
// error type.
func isOversized(err error) bool {
	var known rpctypes.EtcdError
	return !errors.As(err, &known) && status.Code(err) == codes.ResourceExhausted
}
