// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Pauses of Follow between attempts while the store cannot be reached.
const (
	followPauseMin = 50 * time.Millisecond
	followPauseMax = 2 * time.Second
)

// Follow tells of the keys under a prefix until ctx ends, and returns ctx's error. It starts with reset, which gets all
// records as they were at a revision, and goes on with apply for each change. If the needed history is gone it lists
// again, with another reset; it retries an unreachable store without end. Any other error ends it.
func Follow(ctx context.Context, s Store, prefix string, reset func(records []Record, at int64), apply func(Event)) error {
	pause := followPauseMin
	for {
		progress, err := followOnce(ctx, s, prefix, reset, apply)
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
func followOnce(ctx context.Context, s Store, prefix string, reset func([]Record, int64), apply func(Event)) (bool, error) {
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
	reset(records, at)
	progress := false
	for event := range events {
		apply(event)
		progress = true
	}
	return progress, nil
}
