// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// countingStore counts the records that are read from it.
type countingStore struct {
	store.Store
	read atomic.Int64
}

func (s *countingStore) Get(ctx context.Context, key string) (store.Record, error) {
	s.read.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *countingStore) List(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	list, at, err := s.Store.List(ctx, prefix)
	s.read.Add(int64(len(list)))
	return list, at, err
}

func (s *countingStore) Range(ctx context.Context, from, before string, limit int) ([]store.Record, error) {
	list, err := s.Store.Range(ctx, from, before, limit)
	s.read.Add(int64(len(list)))
	return list, err
}

// What a listing costs is what it returns, not what the store holds: anybody
// may ask for one.
func TestListingsReadWhatTheyReturn(t *testing.T) {
	inner, s := newRecords(t)
	const jobs, restarts, runs = 300, 30, 200
	var allocs []*kb.Allocation
	for job := range uint32(jobs) {
		allocs = append(allocs, allocation(job+1, 0, true))
	}
	for restart := range uint32(restarts) {
		allocs = append(allocs, allocation(jobs+1, restart, true))
	}
	var made []*kb.Run
	for id := range uint64(runs) {
		made = append(made, &kb.Run{ID: id + 1, State: kb.RunComplete, Job: kb.JobID{Job: uint32(id%50) + 1}})
	}
	someone := uint32(4711)
	made[42].UID = someone
	for _, a := range allocs[7:10] {
		a.UID = someone
	}
	if err := inner.commit(t.Context(), nil, allocs, made...); err != nil {
		t.Fatal(err)
	}
	counting := &countingStore{Store: s}
	r := &records{store: counting}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, c := range []struct {
		what string
		most int64
		do   func() (int, error)
	}{
		{"the newest job", 1, func() (int, error) { l, err := r.jobs(ctx, 1, nil); return len(l), err }},
		{"100 jobs", 100, func() (int, error) { l, err := r.jobs(ctx, 100, nil); return len(l), err }},
		{"one job, restarted", 1, func() (int, error) { _, err := r.job(ctx, jobs+1, nil); return 1, err }},
		{"the newest run", 1, func() (int, error) { l, err := r.profilingRuns(ctx, 1, 0, nil); return len(l), err }},
		{"70 runs", 70, func() (int, error) { l, err := r.profilingRuns(ctx, 70, 0, nil); return len(l), err }},
		{"runs of a job", 4, func() (int, error) { l, err := r.profilingRuns(ctx, 100, 7, nil); return len(l), err }},
		{"jobs of a user", 3, func() (int, error) { l, err := r.jobs(ctx, 100, &someone); return len(l), err }},
		{"runs of a user", 1, func() (int, error) { l, err := r.profilingRuns(ctx, 100, 0, &someone); return len(l), err }},
		{"two runs of a job", 2, func() (int, error) { l, err := r.profilingRuns(ctx, 2, 7, nil); return len(l), err }},
		// Whether the store is there is asked by reading one.
		{"runs of a job that has none", 1, func() (int, error) { l, err := r.profilingRuns(ctx, 100, 77, nil); return 1 + len(l), err }},
		{"forgetting 10 jobs", 10, func() (int, error) { return 10, jobKind.Prune(ctx, r.store, &r.jobIndex, jobs+restarts-10) }},
		{"forgetting 5 runs", 5, func() (int, error) { return 5, runKind.Prune(ctx, r.store, &r.runIndex, runs-5) }},
		{"forgetting nothing", 0, func() (int, error) { return 0, jobKind.Prune(ctx, r.store, &r.jobIndex, jobs+restarts) }},
	} {
		counting.read.Store(0)
		n, err := c.do()
		if err != nil || int64(n) != c.most || counting.read.Load() > c.most {
			t.Errorf("%s: %d came, %d were read, want %d: %v", c.what, n, counting.read.Load(), c.most, err)
		}
	}
	all, err := r.jobs(ctx, 1000, nil)
	if err != nil || len(all) != jobs+restarts-10 || all[0].ID != (kb.JobID{Job: jobs + 1, Restart: restarts - 1}) || all[len(all)-1].ID.Job != 8 { // the other user keeps his three
		t.Errorf("%d are left, %v", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b *kb.Allocation) int { return strings.Compare(jobKey(b.ID), jobKey(a.ID)) }) {
		t.Error("not the newest first")
	}
}

// A store that is away is no empty one.
func TestListingsWithoutAStore(t *testing.T) {
	r, s := newRecords(t)
	s.FailReads(4)
	for what, do := range map[string]func() error{
		"jobs":          func() error { _, err := r.jobs(t.Context(), 1, nil); return err },
		"a job":         func() error { _, err := r.job(t.Context(), 7, nil); return err },
		"runs":          func() error { _, err := r.profilingRuns(t.Context(), 1, 0, nil); return err },
		"runs of a job": func() error { _, err := r.profilingRuns(t.Context(), 1, 7, nil); return err },
	} {
		if err := do(); !errors.Is(err, kb.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list, err := r.jobs(t.Context(), 1, nil); err != nil || len(list) != 0 {
		t.Errorf("an empty one: %v, %v", list, err)
	}
}

// Whatever was written and forgotten, a listing is the end of what the store has.
func TestIndexIsTheStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := memstore.New()
		r := &records{store: s}
		if err := r.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := func() kb.JobID {
			return kb.JobID{Job: uint32(rapid.IntRange(1, 12).Draw(t, "job")), Restart: uint32(rapid.IntRange(0, 2).Draw(t, "restart"))}
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				// Of what is over the revision is not kept, and it does not come again.
				if a := (&kb.Allocation{ID: id(), Closed: rapid.Bool().Draw(t, "closed")}); r.revisions[jobKey(a.ID)] != 0 || r.jobIndex.Last(jobKey(a.ID)) == "" {
					if err := r.commit(t.Context(), nil, []*kb.Allocation{a}); err != nil {
						t.Fatal(err)
					}
				}
			},
			"prune": func(t *rapid.T) {
				if err := jobKind.Prune(t.Context(), r.store, &r.jobIndex, rapid.IntRange(0, 20).Draw(t, "keep")); err != nil {
					t.Fatal(err)
				}
			},
			"load": func(t *rapid.T) {
				if err := r.load(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			"list": func(t *rapid.T) {
				limit := rapid.IntRange(0, 20).Draw(t, "limit")
				list, _, err := s.List(t.Context(), jobPrefix)
				if err != nil {
					t.Fatal(err)
				}
				var want, have []string
				for _, rec := range slices.Backward(list) {
					if len(want) < limit {
						want = append(want, rec.Key)
					}
				}
				got, err := r.jobs(t.Context(), limit, nil)
				for _, a := range got {
					have = append(have, jobKey(a.ID))
				}
				if err != nil || !slices.Equal(have, want) {
					t.Fatalf("the newest %d are %v, %v; want %v", limit, have, err, want)
				}
			},
		})
	})
}

// Whoever looks at the nodes gets copies, while they change.
func TestNodesWhileTheyChange(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	until(t, "a node", func() bool { return len(f.c.Nodes()) > 0 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			for _, v := range f.c.Nodes() {
				v.Node.Kexecs, v.Node.Desired.Profile = 4711, "changed by who looks"
				v.Node.Inventory.Drivers = append(v.Node.Inventory.Drivers[:0], "changed")
			}
		}
	}()
	f.slurm.job(7, "CONFIGURING", "n1")
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Error(err)
	}
	<-done
	v, err := f.c.Node("n1")
	if err != nil || v.Node.Kexecs == 4711 || strings.HasPrefix(v.Node.Desired.Profile, "changed") || slices.Contains(v.Node.Inventory.Drivers, "changed") {
		t.Errorf("%+v, %v", v.Node, err)
	}
}
