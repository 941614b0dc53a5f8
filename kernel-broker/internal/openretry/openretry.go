// SPDX-License-Identifier: Apache-2.0

// Package openretry opens what one process at a time may have, as soon as the
// process before it has let go.
package openretry

import (
	"context"
	"errors"
	"time"
)

// Patience is how long a daemon waits for the one before it to end.
const Patience = 5 * time.Second

// Open opens, and tries again while that says inUse, for as long as patience. It
// waits for a process that is about to end, or for the last child of one that
// was killed: until its exec a child holds all that its parent held.
func Open[T any](ctx context.Context, patience time.Duration, inUse error, open func() (T, error)) (T, error) {
	for end := time.Now().Add(patience); ; {
		opened, err := open()
		if !errors.Is(err, inUse) || time.Now().After(end) {
			return opened, err
		}
		select {
		case <-ctx.Done():
			return opened, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
