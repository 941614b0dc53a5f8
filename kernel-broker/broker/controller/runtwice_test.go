// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// together is a store whose runs are read by two at the same time.
type together struct {
	store.Store
	both sync.WaitGroup
}

func (s *together) List(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	records, revision, err := s.Store.List(ctx, prefix)
	if prefix == runPrefix {
		s.both.Done()
		s.both.Wait()
	}
	return records, revision, err
}

// A request that is sent twice at once is one run, and takes one job.
func TestRequestSentTwiceAtOnce(t *testing.T) {
	f := newFixture(t)
	s := &together{Store: f.store}
	s.both.Add(2)
	c, err := New(t.Context(), Options{Store: s, Catalog: f.catalog, Slurm: f.slurm, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var ids [2]uint64
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			r, err := c.RequestRun(t.Context(), RunRequest{RequestID: "one", Application: "test"})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = r.ID
		})
	}
	all.Wait()
	if ids[0] != ids[1] {
		t.Errorf("became runs %d and %d", ids[0], ids[1])
	}
	if runs, err := c.ProfilingRuns(t.Context(), 9, 0, nil); err != nil || len(runs) != 1 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}
