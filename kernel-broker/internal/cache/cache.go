// SPDX-License-Identifier: Apache-2.0

// Package cache keeps answers for a while, and shares a lookup among all who
// need the same answer at the same time.
package cache

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxEntries of one cache; it is emptied when it is full.
const maxEntries = 10_000

// Lookup finds an answer, value or error, and how long the cache may keep it; 0
// is not at all. It has the values of its first caller's context, but does not
// end with it, so it needs a time limit of its own.
type Lookup[V any] func(context.Context) (value V, keep time.Duration, err error)

// Cache keeps answers by key. Safe for concurrent use.
type Cache[K comparable, V any] struct {
	// Now defaults to time.Now.
	Now func() time.Time

	group singleflight.Group

	mu         sync.Mutex
	entries    map[K]entry[V]
	generation uint64 // changes with Forget
}

type entry[V any] struct {
	value V
	err   error
	until time.Time
}

// Get returns the answer that is kept, else what lookup finds, which is called
// once for all who wait. When ctx ends first its cause is returned.
func (c *Cache[K, V]) Get(ctx context.Context, key K, lookup Lookup[V]) (V, error) {
	kept, generation, fresh := c.kept(key)
	if fresh {
		return kept.value, kept.err
	}
	flight := c.group.DoChan(fmt.Sprintf("%d %#v", generation, key), func() (any, error) {
		if kept, _, fresh := c.kept(key); fresh {
			return kept, nil // another lookup ended in the meantime
		}
		value, keep, err := lookup(context.WithoutCancel(ctx))
		found := entry[V]{value: value, err: err}
		c.keep(key, generation, found, keep)
		return found, nil
	})
	select {
	case result := <-flight:
		found, _ := result.Val.(entry[V])
		return found.value, found.err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

// GetOrLast is Get, but where lookup fails it returns the last answer without an
// error that was kept, if there is one. What a failure leads to is kept for retry.
func (c *Cache[K, V]) GetOrLast(ctx context.Context, key K, retry time.Duration, lookup Lookup[V]) (V, error) {
	return c.Get(ctx, key, func(ctx context.Context) (V, time.Duration, error) {
		value, keep, err := lookup(ctx)
		if err == nil {
			return value, keep, nil
		}
		if last, known := c.last(key); known {
			return last, retry, nil
		}
		return value, retry, err
	})
}

// last returns the last answer that was kept, however old it is.
func (c *Cache[K, V]) last(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, has := c.entries[key]
	return e.value, has && e.err == nil
}

// Forget makes all kept answers old. Those of lookups under way are not kept.
func (c *Cache[K, V]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for key, e := range c.entries {
		e.until = time.Time{}
		c.entries[key] = e
	}
}

func (c *Cache[K, V]) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

func (c *Cache[K, V]) kept(key K) (e entry[V], generation uint64, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, has := c.entries[key]
	return e, c.generation, has && c.now().Before(e.until)
}

func (c *Cache[K, V]) keep(key K, generation uint64, e entry[V], keep time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keep <= 0 || generation != c.generation {
		return
	}
	if c.entries == nil {
		c.entries = map[K]entry[V]{}
	}
	if _, has := c.entries[key]; !has && len(c.entries) >= maxEntries {
		clear(c.entries)
	}
	e.until = c.now().Add(keep)
	c.entries[key] = e
}
