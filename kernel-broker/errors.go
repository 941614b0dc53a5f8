// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "errors"

// Errors of a request. Callers wrap these with the object's name; only the server package maps them to status codes.
var (
	ErrInvalid            = errors.New("invalid")
	ErrNotFound           = errors.New("not found")
	ErrExists             = errors.New("already exists")
	ErrQuarantined        = errors.New("quarantined")
	ErrRetired            = errors.New("retired")
	ErrFailedPrecondition = errors.New("failed precondition")
	ErrDenied             = errors.New("permission denied")
	ErrUnauthenticated    = errors.New("not authenticated")
	ErrUnavailable        = errors.New("unavailable")
	ErrExhausted          = errors.New("a limit is reached")
)
