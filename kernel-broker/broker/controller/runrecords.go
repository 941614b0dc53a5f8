// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const runPrefix = "runs/"

func runKey(id uint64) string { return fmt.Sprintf("%s%012d", runPrefix, id) }

// runRecords are the profiling runs that are not over, and the number of the
// next one: numbers are never used twice, since the newest run is never
// forgotten.
type runRecords struct {
	open map[uint64]*kb.Run
	next uint64
}

// keepRuns takes in what was committed.
func (r *records) keepRuns(runs []*kb.Run) {
	for _, run := range runs {
		r.runIndex.Put(runKind.Entry(run))
		r.runs.next = max(r.runs.next, run.ID+1)
		if r.runs.open[run.ID] = run; run.Over() {
			delete(r.runs.open, run.ID)
			delete(r.revisions, runKey(run.ID))
		}
	}
}

// profilingRun reads a run, also one that is over.
func (r *records) profilingRun(ctx context.Context, id uint64) (*kb.Run, error) {
	run, _, err := runKind.Get(ctx, r.store, runKey(id))
	if err != nil {
		return nil, fmt.Errorf("run %d: %w", id, err)
	}
	return run, nil
}

// profilingRuns reads the newest runs, newest first: of one job if it is not 0,
// and of one user's jobs if of is not nil.
func (r *records) profilingRuns(ctx context.Context, limit int, job uint32, of *uint32) ([]*kb.Run, error) {
	return runKind.List(ctx, r.store, &r.runIndex, limit, func(e record.Entry) bool {
		return (job == 0 || e.Job.Job == job) && (of == nil || !e.Job.IsZero() && e.UID == *of)
	})
}

// RunFiles returns the digests of the files that runs hold on to, with the run.
func RunFiles(ctx context.Context, s store.Store) (map[string][]string, error) {
	files := map[string][]string{}
	err := runKind.Each(ctx, s, func(r *kb.Run, _ store.Record) {
		for _, n := range r.Nodes {
			for _, f := range n.Files {
				files[f.Digest] = append(files[f.Digest], fmt.Sprintf("run %d", r.ID))
			}
		}
	})
	return files, err
}

// openRunsLocked is a copy: what was is compared with what became of it.
func (c *Controller) openRunsLocked() map[uint64]*kb.Run { return maps.Clone(c.records.runs.open) }
