// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// kind is how the records of one kind are read.
type kind[T any] struct {
	prefix string
	entry  func(*T) entry
	over   func(*T) bool
	index  func(*records) *index
	// before fills in what records of older versions had in another form; nil: nothing.
	before func(text []byte, value *T) error
	// damaged takes in a record that cannot be read; nil: such a record is an error.
	damaged func(rec store.Record, err error)
}

var (
	nodeKind = kind[kb.Node]{
		prefix: nodePrefix,
		entry:  func(n *kb.Node) entry { return entry{key: nodeKey(n.Name)} },
		before: nodeFromBefore,
	}
	jobKind = kind[kb.Allocation]{
		prefix: jobPrefix,
		entry: func(a *kb.Allocation) entry {
			return entry{key: jobKey(a.ID), job: a.ID, uid: a.UID, made: a.Created, open: !a.Closed}
		},
		over:  func(a *kb.Allocation) bool { return a.Closed },
		index: func(r *records) *index { return &r.jobIndex },
	}
	runKind = kind[kb.Run]{
		prefix: runPrefix,
		entry: func(r *kb.Run) entry {
			return entry{key: runKey(r.ID), job: r.Job, uid: r.UID, bytes: fileBytes(r), open: !r.Over()}
		},
		over:  (*kb.Run).Over,
		index: func(r *records) *index { return &r.runIndex },
	}
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

func (b *budget) take(rec store.Record) error {
	if b.bytes += length(rec); b.bytes > mostListed {
		return fmt.Errorf("the newest %d alone have %d MiB, ask for fewer (--limit): %w", b.read, mostListed>>20, kb.ErrExhausted)
	}
	b.read++
	return nil
}

func (k kind[T]) name() string { return strings.TrimSuffix(k.prefix, "/") }

func (k kind[T]) decode(rec store.Record) (*T, error) {
	value := new(T)
	text, err := unpack(rec)
	if err != nil {
		return nil, err
	}
	if err := decode(rec.Key, text, value, func() string { return k.entry(value).key }); err != nil {
		return nil, err
	}
	if k.before != nil {
		if err := k.before(text, value); err != nil {
			return nil, fmt.Errorf("record %q: %w", rec.Key, err)
		}
	}
	return value, nil
}

// each calls do for every record, the oldest first. Not all of them are in memory
// at a time, and so they are not one snapshot: a change of one is fenced by its
// revision.
func (k kind[T]) each(ctx context.Context, s store.Store, do func(value *T, rec store.Record)) error {
	for from := k.prefix; ; {
		list, err := s.Range(ctx, from, k.prefix+"\xff", listPage)
		if err != nil {
			return fmt.Errorf("records of %s: %w: %w", k.name(), kb.ErrUnavailable, err)
		}
		for _, rec := range list {
			switch value, err := k.decode(rec); {
			case err == nil:
				do(value, rec)
			case k.damaged == nil:
				return err
			default:
				k.damaged(rec, err)
			}
		}
		if len(list) < listPage {
			return nil
		}
		from = list[len(list)-1].Key + "\x00"
	}
}

// get reads one record with its revision.
func (k kind[T]) get(ctx context.Context, r *records, key string) (*T, int64, error) {
	rec, err := r.store.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, 0, kb.ErrNotFound
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
	}
	value, err := k.decode(rec)
	return value, rec.Revision, err
}

// list reads up to limit such records, the newest first. Those that are gone by
// now are missing.
func (k kind[T]) list(ctx context.Context, r *records, limit int, such func(entry) bool) (list []*T, err error) {
	keys := k.index(r).newest(limit, such)
	if len(keys) == 0 {
		err = r.checkReachable(ctx, k.prefix)
	}
	var left budget
	for _, key := range keys {
		var rec store.Record
		if rec, err = r.store.Get(ctx, key); errors.Is(err, store.ErrNotFound) {
			err = nil
			continue
		} else if err != nil {
			err = fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
			break
		}
		var value *T
		if err = left.take(rec); err == nil {
			value, err = k.decode(rec)
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

// prune forgets the oldest records beyond keep that are over. The newest stays in
// any case: the number of the next run follows from it.
func (k kind[T]) prune(ctx context.Context, r *records, keep int) error {
	_, err := k.forget(ctx, r, k.index(r).prunable(max(keep, 1)))
	return err
}

// forget deletes records, but for those that are not over, and returns what was in them.
func (k kind[T]) forget(ctx context.Context, r *records, keys []string) (forgotten []*T, err error) {
	for _, key := range keys {
		value, revision, err := k.get(ctx, r, key)
		if errors.Is(err, kb.ErrNotFound) || err == nil && !k.over(value) {
			continue
		}
		if err == nil {
			_, err = r.store.Commit(ctx, store.Write{Key: key, Delete: true, Expect: revision})
		}
		if err != nil {
			return forgotten, fmt.Errorf("record %q: %w", key, err)
		}
		k.index(r).drop(key)
		forgotten = append(forgotten, value)
	}
	return forgotten, nil
}

// checkReachable has the store say that it is there when there is nothing to read: a
// store that is away must not look like one that is empty.
func (r *records) checkReachable(ctx context.Context, prefix string) error {
	if _, err := r.store.Range(ctx, prefix, prefix+"\xff", 1); err != nil {
		return fmt.Errorf("%w: %w", kb.ErrUnavailable, err)
	}
	return nil
}
