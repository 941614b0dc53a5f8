// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (<-chan store.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after < 0 {
		return nil, fmt.Errorf("watch %q: %w: after %d", prefix, store.ErrInvalid, after)
	}
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("watch %q: %w", prefix, err)
	}
	if after < s.compacted || after > s.revision {
		return nil, fmt.Errorf("watch %q after %d: %w", prefix, after, store.ErrCompacted)
	}
	events := make(chan store.Event)
	s.watches.Add(1)
	go func() {
		defer s.watches.Done()
		defer close(events)
		s.pump(ctx, prefix, after, events)
	}()
	return events, nil
}

// pump sends the events after a revision until ctx, the store or the history ends.
func (s *Store) pump(ctx context.Context, prefix string, after int64, events chan<- store.Event) {
	for {
		batch, at, changed, ok := s.since(prefix, after)
		if !ok {
			return
		}
		for _, event := range batch {
			select {
			case events <- event:
			case <-ctx.Done():
				return
			case <-s.closed:
				return
			}
		}
		after = at
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		}
	}
}

// since returns the events after a revision, the last revision they cover, and a channel that closes at the next change.
// It returns false if that history is gone.
func (s *Store) since(prefix string, after int64) ([]store.Event, int64, <-chan struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after < s.compacted {
		return nil, 0, nil, false
	}
	first := sort.Search(len(s.history), func(i int) bool { return s.history[i].Revision > after })
	var batch []store.Event
	for _, event := range s.history[first:] {
		if strings.HasPrefix(event.Key, prefix) {
			event.Record = clone(event.Record)
			batch = append(batch, event)
		}
	}
	return batch, s.revision, s.changed, true
}
