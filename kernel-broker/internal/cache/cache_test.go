// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnswersAreKept(t *testing.T) {
	at := time.Unix(1e9, 0)
	c := Cache[string, int]{Now: func() time.Time { return at }}
	asked := 0
	var failure error
	get := func() (int, error) {
		return c.Get(t.Context(), "key", func(context.Context) (int, time.Duration, error) {
			asked++
			return asked, time.Minute, failure
		})
	}
	for range 3 {
		if got, err := get(); got != 1 || err != nil {
			t.Fatal(got, err)
		}
	}
	at = at.Add(time.Minute)
	if got, err := get(); got != 2 || err != nil {
		t.Error("after a minute:", got, err)
	}
	c.Forget()
	if last, has := c.last("key"); last != 2 || !has {
		t.Error("the last answer:", last, has)
	}
	failure = errors.New("down")
	for range 2 {
		if _, err := get(); !errors.Is(err, failure) || asked != 3 {
			t.Error("a kept error:", err, asked)
		}
	}
	if _, has := c.last("key"); has {
		t.Error("an error is no last answer")
	}
}

func TestLookupsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache[int, int]
		var lookups atomic.Int64
		lookup := func(ctx context.Context) (int, time.Duration, error) {
			lookups.Add(1)
			time.Sleep(time.Second)
			return 7, time.Minute, ctx.Err()
		}
		left, leave := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := c.Get(left, 1, lookup); !errors.Is(err, gone) {
				t.Error("one who left:", err)
			}
		})
		synctest.Wait()
		for range 20 {
			group.Go(func() {
				if got, err := c.Get(t.Context(), 1, lookup); got != 7 || err != nil {
					t.Error(got, err)
				}
			})
		}
		synctest.Wait()
		leave(gone)
		group.Wait()
		if lookups.Load() != 1 {
			t.Errorf("%d lookups", lookups.Load())
		}
	})
}

// An answer from before Forget must not be taken for one from after it.
func TestForgetDuringALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache[string, string]
		answer := func(text string) Lookup[string] {
			return func(context.Context) (string, time.Duration, error) {
				time.Sleep(time.Second)
				return text, time.Minute, nil
			}
		}
		go func() { _, _ = c.Get(t.Context(), "key", answer("old")) }()
		synctest.Wait()
		c.Forget()
		if got, err := c.Get(t.Context(), "key", answer("new")); got != "new" || err != nil {
			t.Error(got, err)
		}
	})
}

func TestEntriesAreBounded(t *testing.T) {
	var c Cache[int, int]
	for key := range maxEntries + 10 {
		if _, err := c.Get(t.Context(), key, func(context.Context) (int, time.Duration, error) { return key, time.Hour, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.entries) > maxEntries {
		t.Errorf("%d are kept", len(c.entries))
	}
}
