// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// picture follows a store and checks its input.
type picture struct {
	mu      sync.Mutex
	records map[string]store.Record
	at      int64
	resets  int
	wrong   []string
}

func newPicture() *picture { return &picture{records: map[string]store.Record{}} }

func (p *picture) Reset(records []store.Record, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.records)
	for _, r := range records {
		p.records[r.Key] = r
	}
	p.at = at
	p.resets++
}

func (p *picture) Apply(e store.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, had := p.records[e.Key]
	switch {
	case e.Revision < p.at:
		p.wrong = append(p.wrong, fmt.Sprintf("%s comes after revision %d", eventText(e), p.at))
	case e.Deleted && !had:
		p.wrong = append(p.wrong, eventText(e)+" deletes a missing key")
	}
	p.at = e.Revision
	if e.Deleted {
		delete(p.records, e.Key)
		return
	}
	p.records[e.Key] = e.Record
}

func (p *picture) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.records[key]
	return ok
}

// wantSame compares the picture with a list.
func (p *picture) wantSame(t failer, records []store.Record) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) > 0 {
		t.Fatalf("wrong events:\n%s", strings.Join(p.wrong, "\n"))
	}
	if len(records) != len(p.records) {
		t.Fatalf("the picture has %d records, the store %d", len(p.records), len(records))
	}
	for _, r := range records {
		if have := text(p.records[r.Key]); have != text(r) {
			t.Fatalf("the picture has %s, the store %s", have, text(r))
		}
	}
}

// churn changes a few keys from several goroutines.
func churn(ctx context.Context, s store.Store, i, writes int) error {
	for n := range writes {
		w := put(fmt.Sprintf("k/%d", (i+n)%7), fmt.Sprintf("%d.%d", i, n), store.AnyRevision)
		if n%4 == 3 {
			w = remove(w.Key, store.AnyRevision)
		}
		if _, err := s.Commit(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// testListThenWatch lists at different moments under concurrent writes. Each list and the events after it must add up to
// the final state.
func testListThenWatch(t *testing.T, s store.Store) {
	const writers, lookers = 4, 5
	pictures := make([]*picture, lookers)
	watches := make([]<-chan store.Event, lookers)
	parallel(t, writers+1, func(i int) error {
		if i < writers {
			return churn(t.Context(), s, i, 40)
		}
		for l := range lookers {
			pictures[l] = newPicture()
			records, at, err := s.List(t.Context(), "k/")
			if err != nil {
				return err
			}
			pictures[l].Reset(records, at)
			if watches[l], err = s.Watch(t.Context(), "k/", at); err != nil {
				return err
			}
			time.Sleep(2 * time.Millisecond)
		}
		return nil
	})
	end := commit(t, s, put("k/end", "", 0))
	records, _ := list(t, s, "k/")
	for l := range lookers {
		for event := next(t, watches[l]); ; event = next(t, watches[l]) {
			pictures[l].Apply(event)
			if event.Revision == end {
				break
			}
		}
		pictures[l].wantSame(t, records)
	}
}

func testCompacted(t *testing.T, s store.Store) {
	c, ok := s.(compacter)
	if !ok {
		t.Fatalf("%T cannot compact, so lost history is not tested", s)
	}
	one := commit(t, s, put("a", "1", 0), put("b", "1", 0))
	two := commit(t, s, put("a", "2", one))
	three := commit(t, s, remove("b", one))
	running := watch(t, s, "", two)
	wantEvents(t, running, deleteText("b", three))
	wantError(t, c.Compact(t.Context(), three), nil)
	wantError(t, c.Compact(t.Context(), three), nil) // a repetition changes nothing
	for _, after := range []int64{one - 1, one, two} {
		_, err := s.Watch(t.Context(), "", after)
		wantError(t, err, store.ErrCompacted)
	}
	wantRecord(t, s, "a", "2", two)
	records, at := list(t, s, "")
	wantKeys(t, records, "a")
	fromList := watch(t, s, "", at)
	four := commit(t, s, put("a", "4", two))
	wantEvents(t, fromList, putText("a", "4", four))
	wantEvents(t, running, putText("a", "4", four)) // it had read up to here
}

// follow starts a Follow and returns a function that ends it and returns its error.
func follow(t *testing.T, s store.Store, prefix string, p *picture) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Follow(ctx, s, prefix, p.Reset, p.Apply) }()
	return func() error {
		cancel()
		return <-done
	}
}

// settle waits until a picture has seen a key, and compares.
func settle(t *testing.T, s store.Store, prefix, key string, p *picture) {
	t.Helper()
	for end := time.Now().Add(patience); !p.has(key); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the follower did not see %q in %v", key, patience)
		}
	}
	records, _ := list(t, s, prefix)
	p.wantSame(t, records)
}

func testFollow(t *testing.T, s store.Store) {
	one := commit(t, s, put("k/a", "1", 0), put("k/b", "1", 0), put("other", "1", 0))
	p := newPicture()
	stop := follow(t, s, "k/", p)
	commit(t, s, put("k/c", "2", 0), remove("k/a", one))
	commit(t, s, put("k/end", "", 0))
	settle(t, s, "k/", "k/end", p)
	wantError(t, stop(), context.Canceled)
	if p.resets != 1 {
		t.Errorf("%d resets, want 1", p.resets)
	}
}

// testFollowManyWriters also drops history under the followers' feet.
func testFollowManyWriters(t *testing.T, s store.Store) {
	const writers, followers = 4, 3
	var pictures []*picture
	var stops []func() error
	for range followers {
		p := newPicture()
		pictures, stops = append(pictures, p), append(stops, follow(t, s, "k/", p))
	}
	parallel(t, writers+1, func(i int) error {
		if i < writers {
			return churn(t.Context(), s, i, 50)
		}
		for range 10 {
			_, at, err := s.List(t.Context(), "none")
			if err != nil {
				return err
			}
			if err := s.(compacter).Compact(t.Context(), at); err != nil {
				return err
			}
			time.Sleep(2 * time.Millisecond)
		}
		return nil
	})
	commit(t, s, put("k/end", "", 0))
	for i, p := range pictures {
		settle(t, s, "k/", "k/end", p)
		wantError(t, stops[i](), context.Canceled)
	}
}
