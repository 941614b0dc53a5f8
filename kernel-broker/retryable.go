// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "time"

// RetryableError says that the same request may succeed after Wait. The API sends Wait to clients as
// google.rpc.RetryInfo.
type RetryableError struct {
	Wait time.Duration
	Err  error
}

// Error implements error.
func (e *RetryableError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RetryableError) Unwrap() error { return e.Err }
