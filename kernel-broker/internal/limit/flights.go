// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"sync"
)

// Flights have those who want to know the same at the same time share one answer.
// Unlike singleflight's, an asker may leave, and what nobody waits for any more is
// given up. The zero value is ready. Safe for concurrent use.
type Flights[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]*flight[V]
}

// flight is one question under way.
type flight[V any] struct {
	here   int // who wait for it
	giveUp context.CancelFunc
	landed chan struct{}
	value  V
	err    error
}

// Do returns what ask says of key, which is asked for all who come until it has
// answered. When ctx ends its cause is returned, and ask goes on for the others;
// it has the values of the first one's ctx.
func (f *Flights[K, V]) Do(ctx context.Context, key K, ask func(context.Context) (V, error)) (V, error) {
	one := f.board(ctx, key, ask)
	select {
	case <-one.landed:
		return one.value, one.err
	case <-ctx.Done():
		f.leave(key, one)
		var none V
		return none, context.Cause(ctx)
	}
}

func (f *Flights[K, V]) board(ctx context.Context, key K, ask func(context.Context) (V, error)) *flight[V] {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.of[key]
	if one == nil {
		if f.of == nil {
			f.of = map[K]*flight[V]{}
		}
		flown, giveUp := context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // G118: fly gives up what it has flown
		one = &flight[V]{giveUp: giveUp, landed: make(chan struct{})}
		f.of[key] = one
		go f.fly(flown, key, one, ask)
	}
	one.here++
	return one
}

func (f *Flights[K, V]) fly(ctx context.Context, key K, one *flight[V], ask func(context.Context) (V, error)) {
	defer one.giveUp()
	one.value, one.err = ask(ctx)
	f.mu.Lock()
	f.forget(key, one)
	f.mu.Unlock()
	close(one.landed)
}

func (f *Flights[K, V]) leave(key K, one *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one.here--; one.here == 0 {
		// Who comes now wants an answer, and not that it was given up.
		f.forget(key, one)
		one.giveUp()
	}
}

func (f *Flights[K, V]) forget(key K, one *flight[V]) {
	if f.of[key] == one {
		delete(f.of, key)
	}
}
