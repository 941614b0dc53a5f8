// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func open(t interface {
	Helper()
	Fatal(...any)
}, o history.Options) *history.Journal {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return noon }
	}
	o.Log = slog.New(slog.DiscardHandler)
	j, err := history.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func booted(node string, job uint32, uid uint32) kb.ClusterEvent {
	return kb.ClusterEvent{Subject: kb.SubjectNode, Event: kb.NodeProven, Node: node, Job: kb.JobID{Job: job}, UID: &uid, User: fmt.Sprint("user", uid)}
}

func numbers(events []kb.ClusterEvent) (list []uint64) {
	for _, e := range events {
		list = append(list, e.Number)
	}
	return list
}

func list(t *testing.T, j *history.Journal, s history.Selection) ([]kb.ClusterEvent, uint64) {
	t.Helper()
	if s.Limit == 0 {
		s.Limit = 100
	}
	events, next, err := j.List(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return events, next
}

func TestEventsAreKeptWithTheirRecords(t *testing.T) {
	kept := memstore.New()
	j := open(t, history.Options{Store: kept})
	if _, err := j.Commit(t.Context(), []kb.ClusterEvent{booted("n1", 7, 1000), booted("n2", 7, 1000)}, store.Write{Key: "nodes/n1", Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Commit(t.Context(), []kb.ClusterEvent{booted("n3", 8, 1001)}); err != nil {
		t.Fatal(err)
	}
	// A refused record takes its events with it.
	if _, err := j.Commit(t.Context(), []kb.ClusterEvent{booted("n1", 9, 1000)}, store.Write{Key: "nodes/n1", Value: []byte("{}")}); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("a record that exists: %v", err)
	}
	for name, reader := range map[string]*history.Journal{"the same": j, "the next broker": open(t, history.Options{Store: kept})} {
		all, next := list(t, reader, history.Selection{})
		if got := numbers(all); !slices.Equal(got, []uint64{1, 2, 3}) || next != 3 || !all[0].At.Equal(noon) {
			t.Errorf("%s: events %v, go on after %d: %+v", name, got, next, all)
		}
		some, _ := list(t, reader, history.Selection{EventFilter: kb.EventFilter{Node: "n2"}})
		if len(some) != 1 || some[0].Node != "n2" || *some[0].UID != 1000 {
			t.Errorf("%s: events of n2: %+v", name, some)
		}
		rest, next := list(t, reader, history.Selection{From: true, After: 1, Limit: 1})
		if got := numbers(rest); !slices.Equal(got, []uint64{2}) || next != 2 {
			t.Errorf("%s: after 1: %v, go on after %d", name, got, next)
		}
		if newest, _ := list(t, reader, history.Selection{Limit: 1}); newest[0].Number != 3 {
			t.Errorf("%s: the newest is %d", name, newest[0].Number)
		}
	}
	if _, _, err := j.List(t.Context(), history.Selection{From: true, After: 4, Limit: 1}); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("a number that is not there yet: %v", err)
	}
}

func TestFollow(t *testing.T) {
	j := open(t, history.Options{Store: memstore.New()})
	commit := func(node string) {
		t.Helper()
		if _, err := j.Commit(t.Context(), []kb.ClusterEvent{booted(node, 1, 1), booted("other", 1, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	commit("n1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pages := make(chan []kb.ClusterEvent)
	ended := make(chan error, 1)
	go func() {
		ended <- j.Follow(ctx, history.Selection{EventFilter: kb.EventFilter{Node: "n1"}}, func(events []kb.ClusterEvent, _ uint64) error {
			pages <- events
			return nil
		})
	}()
	if got := numbers(<-pages); !slices.Equal(got, []uint64{1}) {
		t.Errorf("what was: %v", got)
	}
	commit("n2")
	commit("n1")
	if got := numbers(<-pages); !slices.Equal(got, []uint64{5}) {
		t.Errorf("what comes: %v", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended by %v", err)
	}
}

func TestOldEventsAreForgotten(t *testing.T) {
	now := noon
	o := history.Options{Store: memstore.New(), Now: func() time.Time { return now }, Keep: time.Hour, MaxBytes: 2000}
	j := open(t, o)
	commit := func(n int) {
		t.Helper()
		for range n {
			if _, err := j.Commit(t.Context(), []kb.ClusterEvent{booted("n1", 1, 1)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	commit(300)
	oldest, next, bytes := j.Stats()
	if next != 301 || oldest < 280 || bytes > o.MaxBytes {
		t.Errorf("by bytes: events %d to %d in %d bytes", oldest, next, bytes)
	}
	records, _, err := o.Store.List(t.Context(), "events/")
	if err != nil || uint64(len(records)) != next-oldest {
		t.Errorf("the store has %d records, %v", len(records), err)
	}
	now = now.Add(2 * time.Hour)
	commit(2)
	if all, _ := list(t, j, history.Selection{From: true}); !slices.Equal(numbers(all), []uint64{301, 302}) {
		t.Errorf("by age: %v", numbers(all))
	}
	now = now.Add(2 * time.Hour)
	commit(0)
	if got, next, _ := open(t, o).Stats(); got != 302 || next != 303 {
		t.Errorf("the newest number is lost: %d, %d", got, next)
	}
}

func TestUsersSeeTheirOwnJobs(t *testing.T) {
	j := open(t, history.Options{Store: memstore.New()})
	own, foreign := booted("n1", 1, 1000), booted("n1", 2, 2000)
	uid := uint32(2000)
	drained := kb.ClusterEvent{Subject: kb.SubjectNode, Event: kb.NodeOutOfService, Node: "n1", Why: kb.ReasonReturn + " return" + kb.ReasonForJob + "2"}
	kept := kb.ClusterEvent{Subject: kb.SubjectNode, Event: kb.NodeKept, Node: "n1", To: "job 2", Job: kb.JobID{Job: 1}, UID: own.UID}
	if _, err := j.Commit(t.Context(), []kb.ClusterEvent{own, foreign, drained, kept,
		{Subject: kb.SubjectJob, Event: "ready", Job: kb.JobID{Job: 2}, UID: &uid},
		{Subject: kb.SubjectJob, Event: "ready", Job: kb.JobID{Job: 3}}}); err != nil {
		t.Fatal(err)
	}
	see := func(e kb.ClusterEvent) (kb.ClusterEvent, bool) { return e.SeenBy(1000) }
	all, _ := list(t, j, history.Selection{See: see})
	if len(all) != 4 || all[0].Job.Job != 1 || all[1].Job.Job != 0 || all[1].User != "" || all[1].UID != nil || strings.Contains(all[2].Why, "2") || all[3].To != "" {
		t.Errorf("a user sees %+v", all)
	}
	if hidden, _ := list(t, j, history.Selection{See: see, EventFilter: kb.EventFilter{Job: 2}}); len(hidden) != 0 {
		t.Errorf("somebody else's job is found: %+v", hidden)
	}
}

func TestManyEventsInOneCommit(t *testing.T) {
	kept := memstore.New()
	j := open(t, history.Options{Store: kept})
	const count = 2500
	events := make([]kb.ClusterEvent, count)
	for i := range events {
		events[i] = booted(fmt.Sprint("n", i), 1, 1)
		events[i].Why = strings.Repeat("x", 2000)
	}
	writes := make([]store.Write, store.MaxWrites)
	for i := range writes {
		writes[i] = store.Write{Key: fmt.Sprint("nodes/n", i), Value: make([]byte, store.MaxCommitBytes/store.MaxWrites-20)}
	}
	if _, err := j.Commit(t.Context(), events, writes...); err != nil {
		t.Fatal(err)
	}
	all, next := list(t, open(t, history.Options{Store: kept}), history.Selection{From: true, Limit: 2 * count})
	if len(all) != count || next != count || len(all[0].Why) > 500 {
		t.Errorf("%d events, up to %d", len(all), next)
	}
}

// TestNothingIsLostOrTwice has commits fail before and after they are applied, and brokers begin anew.
func TestNothingIsLostOrTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept := memstore.New()
		j := open(t, history.Options{Store: kept})
		var want []string
		observed := 0
		j.Observe(func(events []kb.ClusterEvent) { observed += len(events) })
		for i := range rapid.IntRange(1, 30).Draw(t, "commits") {
			name := fmt.Sprint("n", i)
			fault := rapid.SampledFrom([]string{"none", "none", "before", "after", "restart"}).Draw(t, "fault")
			switch fault {
			case "before":
				kept.FailCommits(1, memstore.Before)
			case "after":
				kept.FailCommits(1, memstore.After)
			case "restart":
				j = open(t, history.Options{Store: kept})
			}
			_, err := j.Commit(context.Background(), []kb.ClusterEvent{booted(name, 1, 1)}, store.Write{Key: "nodes/" + name, Value: []byte(name)})
			if failed := fault == "before" || fault == "after"; failed != (err != nil) {
				t.Fatalf("commit with fault %s: %v", fault, err)
			}
			if fault != "before" {
				want = append(want, name)
			}
		}
		for _, reader := range []*history.Journal{j, open(t, history.Options{Store: kept})} {
			if _, err := reader.Commit(context.Background(), []kb.ClusterEvent{booted("last", 1, 1)}); err != nil {
				t.Fatal(err)
			}
			want = append(want, "last")
			events, _, err := reader.List(context.Background(), history.Selection{From: true, Limit: 1000})
			var got []string
			for i, e := range events {
				got = append(got, e.Node)
				if e.Number != uint64(i+1) {
					t.Fatalf("numbers %v", numbers(events))
				}
			}
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("kept %v, want %v, %v", got, want, err)
			}
		}
	})
}
