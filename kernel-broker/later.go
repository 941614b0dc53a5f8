// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "time"

// Later is an error that goes away by itself: who comes back after Wait may be
// served. The rpc package tells the client so, and clients keep to it.
type Later struct {
	Wait time.Duration
	Err  error
}

// Error implements error.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns what is the matter.
func (l *Later) Unwrap() error { return l.Err }
