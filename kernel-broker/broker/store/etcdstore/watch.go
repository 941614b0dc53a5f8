// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Pauses before a broken watch is opened again.
const (
	watchPauseMin = 50 * time.Millisecond
	watchPauseMax = 2 * time.Second
)

// Watch implements store.Store. The etcd client resumes a watch over a lost connection; a watch that it gives up (a
// member without a leader, an expired token) is reopened here from the last revision seen.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (<-chan store.Event, error) {
	if after < 0 {
		return nil, fmt.Errorf("watch %q: %w: after %d", prefix, store.ErrInvalid, after)
	}
	if err := s.historyKept(ctx, after); err != nil {
		return nil, fmt.Errorf("watch %q after %d: %w", prefix, after, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("watch %q: %w: closed", prefix, store.ErrUnavailable)
	}
	events := make(chan store.Event)
	s.watches.Add(1)
	go func() {
		defer s.watches.Done()
		defer close(events)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		s.pump(ctx, s.prefix+prefix, after, events)
	}()
	return events, nil
}

// historyKept reports whether all events after a revision are available. Reading at that revision fails on every etcd if
// it is compacted or in the future.
func (s *Store) historyKept(ctx context.Context, after int64) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	_, err := s.client.Get(ctx, s.prefix, clientv3.WithRev(max(after, 1)), clientv3.WithCountOnly())
	if err != nil {
		return translate(err)
	}
	return nil
}

// pump sends events until ctx ends or history is lost.
func (s *Store) pump(ctx context.Context, prefix string, after int64, events chan<- store.Event) {
	pause := watchPauseMin
	for {
		last, err := s.watchOnce(ctx, prefix, after, events)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, store.ErrCompacted) {
			s.log.Warn("watch lost its history", "prefix", prefix, "after", last, "error", err)
			return
		}
		if last > after {
			pause = watchPauseMin
		}
		after = last
		s.log.Warn("watch broke, opening it again", "prefix", prefix, "after", after, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, watchPauseMax)
	}
}

// watchOnce returns the last revision whose events were all sent, and the reason the watch ended.
func (s *Store) watchOnce(ctx context.Context, prefix string, after int64, events chan<- store.Event) (int64, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		if err := resp.Err(); err != nil {
			return after, translate(err)
		}
		for _, event := range resp.Events {
			select {
			case events <- s.event(event):
			case <-ctx.Done():
				return after, ctx.Err()
			}
		}
		// A response holds whole revisions, since fragments are not requested.
		if n := len(resp.Events); n > 0 {
			after = resp.Events[n-1].Kv.ModRevision
		}
	}
	return after, store.ErrUnavailable
}

func (s *Store) event(e *clientv3.Event) store.Event {
	return store.Event{Record: s.record(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete}
}
