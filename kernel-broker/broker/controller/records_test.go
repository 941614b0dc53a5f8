// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

func newRecords(t *testing.T) (*records, *memstore.Store) {
	t.Helper()
	s := memstore.New()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &records{store: s}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r, s
}

func allocation(job, restart uint32, closed bool) *kb.Allocation {
	return &kb.Allocation{ID: kb.JobID{Job: job, Restart: restart}, Nodes: []string{"n1"}, Phase: kb.PhaseDone, Closed: closed}
}

// More records than one commit takes are written in parts, and read back; also where the store takes less than others.
func TestManyRecords(t *testing.T) {
	for _, most := range []store.Limits{store.MostLimits, {Writes: 17, Bytes: 64 << 10}} {
		t.Run(fmt.Sprintf("%d writes of %d bytes", most.Writes, most.Bytes), func(t *testing.T) { testManyRecords(t, most) })
	}
}

func testManyRecords(t *testing.T, most store.Limits) {
	r, s := newRecords(t)
	s.Limit(most)
	var nodes []*kb.Node
	var allocs []*kb.Allocation
	for i := range 2 * store.MaxWrites {
		nodes = append(nodes, &kb.Node{Name: fmt.Sprintf("n%d", i)})
		a := allocation(uint32(i+1), 0, i%2 == 0)
		a.Note(time.Now(), "", "words", strings.Repeat("x", 20000))
		allocs = append(allocs, a)
	}
	if err := r.commit(t.Context(), nodes, allocs); err != nil {
		t.Fatal(err)
	}
	again := &records{store: s}
	if err := again.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(again.nodes) != len(nodes) || len(again.allocs) != len(allocs)/2 || len(r.allocs) != len(allocs)/2 {
		t.Errorf("%d nodes, %d open allocations, %d in memory", len(again.nodes), len(again.allocs), len(r.allocs))
	}
	// Both know the revisions now, the first to write wins.
	n := &kb.Node{Name: "n3", Kexecs: 1}
	if err := r.commit(t.Context(), []*kb.Node{n}, nil); err != nil {
		t.Error(err)
	}
	if err := again.commit(t.Context(), []*kb.Node{n}, nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a writer with an old picture: %v", err)
	}
}

func TestJobsOfAnArray(t *testing.T) {
	r, s := newRecords(t)
	for _, a := range []*kb.Allocation{allocation(9, 0, true), allocation(10, 0, true), allocation(10, 1, true), allocation(10, 12, false), allocation(100, 0, true)} {
		if err := r.commit(t.Context(), nil, []*kb.Allocation{a}); err != nil {
			t.Fatal(err)
		}
	}
	one := uint32(1)
	if a, err := r.job(t.Context(), 10, &one); err != nil || a.ID.Restart != 1 {
		t.Errorf("restart 1: %+v, %v", a, err)
	}
	if a, err := r.job(t.Context(), 10, nil); err != nil || a.ID.Restart != 12 {
		t.Errorf("the newest: %+v, %v", a, err)
	}
	for _, missing := range []uint32{1, 99, 1000} {
		if _, err := r.job(t.Context(), missing, nil); !errors.Is(err, kb.ErrNotFound) {
			t.Errorf("job %d: %v", missing, err)
		}
		if _, err := r.job(t.Context(), missing, &one); !errors.Is(err, kb.ErrNotFound) {
			t.Errorf("job %d, restart 1: %v", missing, err)
		}
	}
	list, err := r.jobs(t.Context(), 3, nil)
	if err != nil || len(list) != 3 || list[0].ID.Job != 100 || list[1].ID != (kb.JobID{Job: 10, Restart: 12}) {
		t.Errorf("jobs %+v, %v", list, err)
	}
	s.FailReads(3)
	if _, err := r.job(t.Context(), 10, nil); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("job = %v", err)
	}
	if _, err := r.job(t.Context(), 10, &one); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("job = %v", err)
	}
	if _, err := r.jobs(t.Context(), 10, nil); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("jobs = %v", err)
	}
}

// Only ended jobs are forgotten, the oldest first.
func TestPrune(t *testing.T) {
	r, _ := newRecords(t)
	for job := uint32(1); job <= 10; job++ {
		if err := r.commit(t.Context(), nil, []*kb.Allocation{allocation(job, 0, job != 2)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := jobKind.Prune(t.Context(), r.store, &r.jobIndex, 4); err != nil {
		t.Fatal(err)
	}
	list, err := r.jobs(t.Context(), 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	var left []uint32
	for _, a := range list {
		left = append(left, a.ID.Job)
	}
	if fmt.Sprint(left) != "[10 9 8 7 2]" {
		t.Errorf("left %v", left)
	}
}
