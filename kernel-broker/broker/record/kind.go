// SPDX-License-Identifier: Apache-2.0

// Package record reads and writes the broker's records in its store: as JSON, packed where that is long, by kind. An index of
// their keys finds the newest and the oldest.
package record

import (
	"context"
	"errors"
	"fmt"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Kind is how the records of one kind are read.
type Kind[T any] struct {
	Prefix string
	Entry  func(*T) Entry
	Over   func(*T) bool
	// Before fills in what records of older versions had in another form; nil: nothing.
	Before func(text []byte, value *T) error
	// Damaged takes in a record that cannot be read; nil: such a record is an error.
	Damaged func(rec store.Record, err error)
}

const (
	// listPage is how many records are read at a time. That of a job of 16 nodes
	// has some 20 kB.
	listPage = 64
	// mostListed bounds what one listing reads. Nothing as long could be sent:
	// records are about twice as long as their messages.
	mostListed = 64 << 20
)

// budget is what a listing may still read.
type budget struct{ read, bytes int }

func (b *budget) take(rec store.Record) error {
	if b.bytes += length(rec); b.bytes > mostListed {
		return fmt.Errorf("the newest %d alone have %d MiB, ask for fewer (--limit): %w", b.read, mostListed>>20, kb.ErrExhausted)
	}
	b.read++
	return nil
}

func (k Kind[T]) name() string { return strings.TrimSuffix(k.Prefix, "/") }

func (k Kind[T]) Decode(rec store.Record) (*T, error) {
	value := new(T)
	text, err := Unpack(rec)
	if err != nil {
		return nil, err
	}
	if err := Decode(rec.Key, text, value, func() string { return k.Entry(value).Key }); err != nil {
		return nil, err
	}
	if k.Before != nil {
		if err := k.Before(text, value); err != nil {
			return nil, fmt.Errorf("record %q: %w", rec.Key, err)
		}
	}
	return value, nil
}

// Each calls do for every record, the oldest first. Not all of them are in memory
// at a time, and so they are not one snapshot: a change of one is fenced by its
// revision.
func (k Kind[T]) Each(ctx context.Context, s store.Store, do func(value *T, rec store.Record)) error {
	for from := k.Prefix; ; {
		list, err := s.Range(ctx, from, k.Prefix+"\xff", listPage)
		if err != nil {
			return fmt.Errorf("records of %s: %w: %w", k.name(), kb.ErrUnavailable, err)
		}
		for _, rec := range list {
			switch value, err := k.Decode(rec); {
			case err == nil:
				do(value, rec)
			case k.Damaged == nil:
				return err
			default:
				k.Damaged(rec, err)
			}
		}
		if len(list) < listPage {
			return nil
		}
		from = list[len(list)-1].Key + "\x00"
	}
}

// Get reads one record with its revision.
func (k Kind[T]) Get(ctx context.Context, s store.Store, key string) (*T, int64, error) {
	rec, err := s.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, 0, kb.ErrNotFound
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
	}
	value, err := k.Decode(rec)
	return value, rec.Revision, err
}

// List reads up to limit such records, the newest first. Those that are gone by
// now are missing.
func (k Kind[T]) List(ctx context.Context, s store.Store, x *Index, limit int, such func(Entry) bool) (list []*T, err error) {
	keys := x.Newest(limit, such)
	if len(keys) == 0 {
		err = CheckReachable(ctx, s, k.Prefix)
	}
	var left budget
	for _, key := range keys {
		var rec store.Record
		if rec, err = s.Get(ctx, key); errors.Is(err, store.ErrNotFound) {
			err = nil
			continue
		} else if err != nil {
			err = fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
			break
		}
		var value *T
		if err = left.take(rec); err == nil {
			value, err = k.Decode(rec)
		}
		if err != nil {
			break
		}
		list = append(list, value)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.name(), err)
	}
	return list, nil
}

// Prune forgets the oldest records beyond keep that are over. The newest stays in
// any case: the number of the next run follows from it.
func (k Kind[T]) Prune(ctx context.Context, s store.Store, x *Index, keep int) error {
	_, err := k.Forget(ctx, s, x, x.Prunable(max(keep, 1)))
	return err
}

// Forget deletes records, but for those that are not over, and returns what was in them.
func (k Kind[T]) Forget(ctx context.Context, s store.Store, x *Index, keys []string) (forgotten []*T, err error) {
	for _, key := range keys {
		value, revision, err := k.Get(ctx, s, key)
		if errors.Is(err, kb.ErrNotFound) || err == nil && !k.Over(value) {
			continue
		}
		if err == nil {
			_, err = s.Commit(ctx, store.Write{Key: key, Delete: true, Expect: revision})
		}
		if err != nil {
			return forgotten, fmt.Errorf("record %q: %w", key, err)
		}
		x.Drop(key)
		forgotten = append(forgotten, value)
	}
	return forgotten, nil
}

// CheckReachable has the store say that it is there when there is nothing to read: a
// store that is away must not look like one that is empty.
func CheckReachable(ctx context.Context, s store.Store, prefix string) error {
	if _, err := s.Range(ctx, prefix, prefix+"\xff", 1); err != nil {
		return fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
	}
	return nil
}
