// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

func watch(t failer, s store.Store, prefix string, after int64) <-chan store.Event {
	t.Helper()
	events, err := s.Watch(t.Context(), prefix, after)
	if err != nil {
		t.Fatalf("Watch(%q, %d): %v", prefix, after, err)
	}
	return events
}

func next(t failer, events <-chan store.Event) store.Event {
	t.Helper()
	select {
	case event, open := <-events:
		if !open {
			t.Fatalf("the watch ended")
		}
		return event
	case <-time.After(patience):
		t.Fatalf("no event in %v", patience)
	}
	panic("not reached")
}

func wantEvents(t failer, events <-chan store.Event, want ...string) {
	t.Helper()
	for _, w := range want {
		if have := eventText(next(t, events)); have != w {
			t.Fatalf("event %s, want %s", have, w)
		}
	}
}

func putText(key, value string, revision int64) string {
	return text(store.Record{Key: key, Value: []byte(value), Revision: revision})
}

func deleteText(key string, revision int64) string {
	return fmt.Sprintf("-%q@%d", key, revision)
}

func testWatchOrder(t *testing.T, s store.Store) {
	_, at := list(t, s, "")
	events := watch(t, s, "", at)
	var want []string
	revision := int64(0)
	for i := range 40 {
		value := fmt.Sprint(i)
		if i%5 == 4 {
			revision = commit(t, s, remove("k", revision))
			want = append(want, deleteText("k", revision))
			revision = 0
			continue
		}
		revision = commit(t, s, put("k", value, revision))
		want = append(want, putText("k", value, revision))
	}
	wantEvents(t, events, want...)

	// One commit: its events are neighbours and share the revision.
	revision = commit(t, s, put("z", "z", 0), put("y", "y", 0), put("x", "x", 0))
	have := []string{eventText(next(t, events)), eventText(next(t, events)), eventText(next(t, events))}
	slices.Sort(have)
	if fmt.Sprint(have) != fmt.Sprint([]string{putText("x", "x", revision), putText("y", "y", revision), putText("z", "z", revision)}) {
		t.Errorf("events of one commit: %v", have)
	}
}

func testWatchHistory(t *testing.T, s store.Store) {
	one := commit(t, s, put("a", "1", 0))
	two := commit(t, s, put("b", "2", 0), remove("a", one))
	commit(t, s, remove("nothing", 0))
	three := commit(t, s, put("a", "3", 0))
	wantEvents(t, watch(t, s, "a", one), deleteText("a", two), putText("a", "3", three))
	wantEvents(t, watch(t, s, "", two), putText("a", "3", three))
	wantEvents(t, watch(t, s, "a", one-1), putText("a", "1", one), deleteText("a", two))
	last := watch(t, s, "", three)
	four := commit(t, s, put("a", "4", three))
	wantEvents(t, last, putText("a", "4", four))
}

func testWatchPrefix(t *testing.T, s store.Store) {
	_, at := list(t, s, "")
	jobs, nodes := watch(t, s, "jobs/", at), watch(t, s, "nodes/", at)
	one := commit(t, s, put("jobs", "no", 0), put("jobs/1", "yes", 0), put("jobs0", "no", 0))
	two := commit(t, s, put("nodes/1", "n", 0))
	three := commit(t, s, remove("jobs/1", one), remove("jobs", one))
	wantEvents(t, jobs, putText("jobs/1", "yes", one), deleteText("jobs/1", three))
	wantEvents(t, nodes, putText("nodes/1", "n", two))
}

func testWatchSlowReader(t *testing.T, s store.Store) {
	const changes = 300
	_, at := list(t, s, "")
	events := watch(t, s, "", at)
	revision := int64(0)
	for i := range changes {
		revision = commit(t, s, put("k", fmt.Sprint(i), revision))
	}
	for i := range changes {
		if e := next(t, events); string(e.Value) != fmt.Sprint(i) {
			t.Fatalf("event %d is %s", i, eventText(e))
		}
	}
}

func testWatchEnds(t *testing.T, s store.Store) {
	one := commit(t, s, put("a", "1", 0))
	ctx, cancel := context.WithCancel(t.Context())
	idle, err := s.Watch(ctx, "", one)
	wantError(t, err, nil)
	full, err := s.Watch(ctx, "", one-1) // its event is never read
	wantError(t, err, nil)
	other := watch(t, s, "", one)
	cancel()
	wantClosed(t, idle)
	wantClosed(t, full)
	two := commit(t, s, put("a", "2", one))
	wantEvents(t, other, putText("a", "2", two))
}

func testWatchRefused(t *testing.T, s store.Store) {
	_, at := list(t, s, "")
	_, err := s.Watch(t.Context(), "", -1)
	wantError(t, err, store.ErrInvalid)
	_, err = s.Watch(t.Context(), "", at+100_000)
	wantError(t, err, store.ErrCompacted)
}
