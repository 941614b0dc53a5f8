// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

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

func (b *budget) take(records ...store.Record) error {
	for _, rec := range records {
		if b.bytes += length(rec); b.bytes > mostListed {
			return fmt.Errorf("the newest %d alone have %d MiB, ask for fewer (--limit): %w", b.read, mostListed>>20, kb.ErrExhausted)
		}
		b.read++
	}
	return nil
}

// neighbours reads records that are next to each other, page by page; keys may
// go either way, and so do the pages. Records that are gone by now are missing.
func (r *records) neighbours(ctx context.Context, keys []string, page func([]store.Record) error) error {
	for part := range slices.Chunk(keys, listPage) {
		from, to := part[0], part[len(part)-1]
		list, err := r.store.Range(ctx, min(from, to), max(from, to)+"\x00", len(part))
		if err != nil {
			return fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
		}
		if from > to {
			slices.Reverse(list)
		}
		if err := page(list); err != nil {
			return err
		}
	}
	return nil
}

// oneByOne reads records wherever they are. Those that are gone are missing.
func (r *records) oneByOne(ctx context.Context, keys []string, one func([]store.Record) error) error {
	for _, key := range keys {
		rec, err := r.store.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
		}
		if err := one([]store.Record{rec}); err != nil {
			return err
		}
	}
	return nil
}

// eachRecord looks at every record under a prefix, the oldest first. Not
// all of them are in memory at a time, and so they are not one snapshot: a
// change of one is fenced by its revision.
func eachRecord(ctx context.Context, s store.Store, prefix string, look func(store.Record) error) error {
	for from := prefix; ; {
		list, err := s.Range(ctx, from, prefix+"\xff", listPage)
		if err != nil {
			return err
		}
		for _, rec := range list {
			if err := look(rec); err != nil {
				return err
			}
		}
		if len(list) < listPage {
			return nil
		}
		from = list[len(list)-1].Key + "\x00"
	}
}

// nothing has the store say that it is there when there is nothing to read: a
// store that is away must not look like one that is empty.
func (r *records) nothing(ctx context.Context, prefix string) error {
	if _, err := r.store.Range(ctx, prefix, prefix+"\xff", 1); err != nil {
		return fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
	}
	return nil
}

// newest reads up to limit records of a kind, the newest first.
func newest[T any](ctx context.Context, r *records, x *index, prefix string, limit int, read func(store.Record) (T, error)) ([]T, error) {
	return listed(ctx, r, prefix, x.newest(limit), r.neighbours, read)
}

// about reads up to limit such records, the newest first.
func about[T any](ctx context.Context, r *records, x *index, prefix string, limit int, such func(entry) bool, read func(store.Record) (T, error)) ([]T, error) {
	return listed(ctx, r, prefix, x.about(limit, such), r.oneByOne, read)
}

// listed reads the records of the keys as walk comes to them.
func listed[T any](ctx context.Context, r *records, prefix string, keys []string,
	walk func(context.Context, []string, func([]store.Record) error) error, read func(store.Record) (T, error),
) ([]T, error) {
	if len(keys) == 0 {
		return nil, r.nothing(ctx, prefix)
	}
	var out []T
	var left budget
	err := walk(ctx, keys, func(list []store.Record) error {
		if err := left.take(list...); err != nil {
			return err
		}
		for _, rec := range list {
			one, err := read(rec)
			if err != nil {
				return err
			}
			out = append(out, one)
		}
		return nil
	})
	return out, err
}

// forget removes the oldest records of a kind beyond keep, those that may go.
func (r *records) forget(ctx context.Context, x *index, keep int, may func(store.Record) (bool, error)) error {
	return r.neighbours(ctx, x.beyond(keep), func(list []store.Record) error {
		for _, rec := range list {
			if goes, err := may(rec); err != nil {
				return err
			} else if !goes {
				continue
			}
			if _, err := r.store.Commit(ctx, store.Write{Key: rec.Key, Delete: true, Expect: rec.Revision}); err != nil {
				return fmt.Errorf("record %q: %w", rec.Key, err)
			}
			x.drop(rec.Key)
		}
		return nil
	})
}
