// SPDX-License-Identifier: Apache-2.0

// Package memstore is a store in memory for unit tests. It passes the same conformance suite as etcdstore.
//
// It can inject faults: FailCommits makes the next commits report ErrUnavailable, with or without applying the change.
package memstore

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Moment is when an injected fault strikes.
type Moment int

const (
	Before Moment = iota // the commit is not applied
	After                // the commit is applied and its answer is lost
)

// Store is a store.Store in memory.
type Store struct {
	mu        sync.Mutex
	records   map[string]store.Record
	revision  int64
	closed    bool
	faults    []Moment
	readFault int
	limits    store.Limits
}

// New returns an empty store at revision 1, as a new etcd is.
func New() *Store {
	return &Store{records: make(map[string]store.Record), revision: 1, limits: store.MostLimits}
}

// Limit makes the store take smaller commits, as an etcd with smaller limits.
func (s *Store) Limit(l store.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

// Limits implements store.Store.
func (s *Store) Limits() store.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// FailCommits makes the next n commits report ErrUnavailable. Faults queue in the order of the calls. Only commits that
// would succeed count.
func (s *Store) FailCommits(n int, when Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults = append(s.faults, when)
	}
}

// FailReads makes the next n calls of Get, List and Range report ErrUnavailable.
func (s *Store) FailReads(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readFault += n
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readable(ctx); err != nil {
		return store.Record{}, fmt.Errorf("key %q: %w", key, err)
	}
	record, ok := s.records[key]
	if !ok {
		return store.Record{}, fmt.Errorf("key %q: %w", key, store.ErrNotFound)
	}
	return clone(record), nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readable(ctx); err != nil {
		return nil, 0, fmt.Errorf("list %q: %w", prefix, err)
	}
	var records []store.Record
	for key, record := range s.records {
		if strings.HasPrefix(key, prefix) {
			records = append(records, clone(record))
		}
	}
	sort.Slice(records, func(i, j int) bool { return records[i].Key < records[j].Key })
	return records, s.revision, nil
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, from, before string, limit int) ([]store.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := store.CheckRange(from, before, limit)
	if err == nil {
		err = s.readable(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("range %q to %q: %w", from, before, err)
	}
	var keys []string
	for key := range s.records {
		if from <= key && key < before {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	var records []store.Record
	for _, key := range keys[:min(limit, len(keys))] {
		records = append(records, clone(s.records[key]))
	}
	return records, nil
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, writes ...store.Write) (int64, error) {
	if err := store.Check(writes, s.Limits()); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	for _, w := range writes {
		have := s.records[w.Key].Revision
		if w.Expect != store.AnyRevision && w.Expect != have {
			return 0, &store.ConflictError{Key: w.Key, Expect: w.Expect, Have: have}
		}
	}
	if len(s.faults) == 0 {
		return s.apply(writes), nil
	}
	when := s.faults[0]
	s.faults = s.faults[1:]
	if when == After {
		s.apply(writes)
	}
	return 0, fmt.Errorf("commit: injected fault: %w", store.ErrUnavailable)
}

// apply needs s.mu and expectations that hold.
func (s *Store) apply(writes []store.Write) int64 {
	changed, next := false, s.revision+1
	for _, w := range writes {
		_, had := s.records[w.Key]
		if w.Delete {
			delete(s.records, w.Key)
		} else {
			s.records[w.Key] = clone(store.Record{Key: w.Key, Value: w.Value, Revision: next})
		}
		changed = changed || had || !w.Delete
	}
	if changed {
		s.revision = next
	}
	return s.revision
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// usable needs s.mu.
func (s *Store) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	if s.closed {
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	}
	return nil
}

// readable needs s.mu.
func (s *Store) readable(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if s.readFault > 0 {
		s.readFault--
		return fmt.Errorf("injected fault: %w", store.ErrUnavailable)
	}
	return nil
}

// clone copies the value and turns an empty one into nil: a store cannot distinguish them.
func clone(r store.Record) store.Record {
	if len(r.Value) == 0 {
		r.Value = nil
		return r
	}
	r.Value = bytes.Clone(r.Value)
	return r
}
