// SPDX-License-Identifier: Apache-2.0

// Package openretry opens a resource that one process at a time can hold, as soon as the previous holder releases it.
package openretry

import (
	"context"
	"errors"
	"time"
)

// Patience is how long a daemon waits for the one before it to end.
const Patience = 5 * time.Second

// Open retries open while it returns inUse, for at most patience. It waits for a process that is about to end, or for
// the last child of a killed one: until its exec a child holds its parent's descriptors.
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
