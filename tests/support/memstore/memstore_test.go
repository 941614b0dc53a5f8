// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFailCommits(t *testing.T) {
	s := memstore.New()
	s.FailCommits(1, memstore.Before)
	s.FailCommits(2, memstore.After)
	write := store.Write{Key: "a", Value: []byte("1")}

	if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("first commit = %v", err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a fault before: Get = %v, want ErrNotFound", err)
	}
	if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("second commit = %v", err)
	}
	r, err := s.Get(t.Context(), "a")
	if err != nil || string(r.Value) != "1" {
		t.Fatalf("a fault after: Get = %q, %v, want it applied", r.Value, err)
	}
	// A conflict takes precedence over the fault and does not consume it.
	if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("repeated commit = %v, want a conflict", err)
	}
	write.Expect = r.Revision
	if _, err := s.Commit(t.Context(), write); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("third fault = %v", err)
	}
	write.Expect = store.AnyRevision
	if _, err := s.Commit(t.Context(), write); err != nil {
		t.Fatalf("no faults are left, Commit = %v", err)
	}
}

func TestFailReads(t *testing.T) {
	s := memstore.New()
	s.FailReads(2)
	_, getErr := s.Get(t.Context(), "a")
	_, _, listErr := s.List(t.Context(), "")
	if !errors.Is(getErr, store.ErrUnavailable) || !errors.Is(listErr, store.ErrUnavailable) {
		t.Errorf("Get = %v, List = %v", getErr, listErr)
	}
	if _, _, err := s.List(t.Context(), ""); err != nil {
		t.Errorf("no faults are left, List = %v", err)
	}
}

// TestCompactEndsSlowWatch: a watch that misses compacted history is closed, not silently incomplete.
func TestCompactEndsSlowWatch(t *testing.T) {
	s := memstore.New()
	defer func() { _ = s.Close() }()
	put := func() int64 {
		at, err := s.Commit(t.Context(), store.Write{Key: "a", Expect: store.AnyRevision})
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	events, err := s.Watch(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	put() // the watch may have read it
	put()
	last := put()
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	var seen int
	for event := range events {
		if seen++; event.Revision > last {
			t.Fatalf("event at %d after the hole", event.Revision)
		}
		if event.Revision == last {
			return // it had read all three
		}
	}
	if seen > 2 {
		t.Errorf("%d events and then closed", seen)
	}
}

// blocked is a follower that waits for permission to take events.
type blocked struct {
	resets chan []store.Record
	applys chan store.Event
}

func (b blocked) Reset(records []store.Record, _ int64) { b.resets <- records }
func (b blocked) Apply(e store.Event)                   { b.applys <- e }

// TestFollowListsAgain drops the history that a slow follower still needs. The watch may have read ahead, so it can need
// more than one round.
func TestFollowListsAgain(t *testing.T) {
	s := memstore.New()
	ctx, cancel := context.WithCancel(t.Context())
	b := blocked{make(chan []store.Record), make(chan store.Event)}
	done := make(chan error)
	go func() { done <- store.Follow(ctx, s, "", b.Reset, b.Apply) }()
	if first := <-b.resets; len(first) != 0 {
		t.Fatalf("first picture %v", first)
	}
	for again := false; !again; {
		var last int64
		for range 3 {
			var err error
			if last, err = s.Commit(ctx, store.Write{Key: "a", Expect: store.AnyRevision}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if err := s.Compact(ctx, last); err != nil {
			t.Fatal(err)
		}
		for seen := int64(0); seen < last && !again; {
			select {
			case e := <-b.applys:
				seen = e.Revision
			case records := <-b.resets:
				if again = true; len(records) != 1 || records[0].Revision != last {
					t.Fatalf("second picture %v", records)
				}
			}
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestFollowOutlastsAnOutage: an unreachable store is tried again.
func TestFollowOutlastsAnOutage(t *testing.T) {
	s := memstore.New()
	s.FailReads(2)
	ctx, cancel := context.WithCancel(t.Context())
	b := blocked{make(chan []store.Record), make(chan store.Event)}
	done := make(chan error)
	go func() { done <- store.Follow(ctx, s, "", b.Reset, b.Apply) }()
	<-b.resets
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
