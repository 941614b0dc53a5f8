// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Watch implements store.Store. The etcd client resumes a watch over a lost connection.
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
		if err := s.send(ctx, s.prefix+prefix, after, events); ctx.Err() == nil {
			s.log.Warn("watch lost", "prefix", prefix, "error", err)
		}
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

// send sends events until the watch ends, and returns why.
func (s *Store) send(ctx context.Context, prefix string, after int64, events chan<- store.Event) error {
	for resp := range s.client.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		for _, event := range resp.Events {
			select {
			case events <- s.event(event):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := resp.Err(); err != nil {
			return translate(err)
		}
	}
	return store.ErrUnavailable
}

func (s *Store) event(e *clientv3.Event) store.Event {
	return store.Event{Record: s.record(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete}
}
