// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Follower maintains a copy of the keys under a prefix. One goroutine calls its methods.
type Follower interface {
	// Reset replaces the whole picture by the records as they were at a
	// revision.
	Reset(records []Record, at int64)
	// Apply changes the picture by one event.
	Apply(Event)
}

// Pauses of Follow between attempts while the store cannot be reached.
const (
	followPauseMin = 50 * time.Millisecond
	followPauseMax = 2 * time.Second
)

// Follow keeps a follower up to date until ctx ends, and returns ctx's error. It starts with a Reset. If the needed
// history is gone it lists again, with another Reset; it retries an unreachable store without end. Any other error ends
// it.
func Follow(ctx context.Context, s Store, prefix string, f Follower) error {
	pause := followPauseMin
	for {
		progress, err := followOnce(ctx, s, prefix, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrCompacted) {
			return fmt.Errorf("follow %q: %w", prefix, err)
		}
		if progress {
			pause = followPauseMin
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, followPauseMax)
	}
}

// followOnce lists, then watches until the watch ends. It reports whether an event arrived.
func followOnce(ctx context.Context, s Store, prefix string, f Follower) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	records, at, err := s.List(ctx, prefix)
	if err != nil {
		return false, err
	}
	events, err := s.Watch(ctx, prefix, at)
	if err != nil {
		return false, err
	}
	f.Reset(records, at)
	progress := false
	for event := range events {
		f.Apply(event)
		progress = true
	}
	return progress, nil
}
