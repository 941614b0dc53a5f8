// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
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

func loadRuns(ctx context.Context, s store.Store, revisions map[string]int64) (runRecords, []entry, error) {
	runs := runRecords{open: map[uint64]*kb.Run{}, next: 1}
	var entries []entry
	err := eachRecord(ctx, s, runPrefix, func(rec store.Record) error {
		r, err := decodeRun(rec)
		if err != nil {
			return err
		}
		entries = append(entries, entry{rec.Key, r.Job, r.UID})
		runs.next = max(runs.next, r.ID+1)
		if !r.Over() {
			runs.open[r.ID], revisions[rec.Key] = r, rec.Revision
		}
		return nil
	})
	if err != nil {
		return runs, nil, fmt.Errorf("records of runs: %w", err)
	}
	return runs, entries, nil
}

func decodeRun(rec store.Record) (*kb.Run, error) {
	r := new(kb.Run)
	if err := decode(rec, r, func() string { return runKey(r.ID) }); err != nil {
		return nil, err
	}
	return r, nil
}

// keepRuns takes in what was committed.
func (r *records) keepRuns(runs []*kb.Run) {
	for _, run := range runs {
		r.runIndex.put(entry{runKey(run.ID), run.Job, run.UID})
		r.runs.next = max(r.runs.next, run.ID+1)
		if r.runs.open[run.ID] = run; run.Over() {
			delete(r.runs.open, run.ID)
			delete(r.revisions, runKey(run.ID))
		}
	}
}

// profilingRun reads a run, also one that is over.
func (r *records) profilingRun(ctx context.Context, id uint64) (*kb.Run, error) {
	rec, err := r.store.Get(ctx, runKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("run %d: %w", id, kb.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("run %d: %w: %w", id, kb.ErrUnavailable, err)
	}
	return decodeRun(rec)
}

// profilingRuns reads the newest runs, newest first: of one job if it is not 0,
// and of one user's jobs if of is not nil.
func (r *records) profilingRuns(ctx context.Context, limit int, job uint32, of *uint32) ([]*kb.Run, error) {
	if job != 0 || of != nil {
		return r.runsAbout(ctx, limit, func(e entry) bool {
			return (job == 0 || e.job.Job == job) && (of == nil || !e.job.IsZero() && e.uid == *of)
		})
	}
	runs, err := newest(ctx, r, &r.runIndex, runPrefix, limit, decodeRun)
	if err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	return runs, nil
}

func (r *records) runsAbout(ctx context.Context, limit int, such func(entry) bool) ([]*kb.Run, error) {
	runs, err := about(ctx, r, &r.runIndex, runPrefix, limit, such, decodeRun)
	if err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	return runs, nil
}

// allRuns reads every run in the store, newest first.
func (r *records) allRuns(ctx context.Context) ([]*kb.Run, error) {
	list, _, err := r.store.List(ctx, runPrefix)
	if err != nil {
		return nil, fmt.Errorf("runs: %w: %w", kb.ErrUnavailable, err)
	}
	var runs []*kb.Run
	for _, rec := range slices.Backward(list) {
		run, err := decodeRun(rec)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// pruneRuns forgets the oldest runs beyond keep that are over. The newest stays
// in any case.
func (r *records) pruneRuns(ctx context.Context, keep int) error {
	err := r.forget(ctx, &r.runIndex, max(keep, 1), func(rec store.Record) (bool, error) {
		run, err := decodeRun(rec)
		return err == nil && run.Over(), err
	})
	if err != nil {
		return fmt.Errorf("runs: %w", err)
	}
	return nil
}

// RunFiles returns the digests of the files that runs hold on to, with the run.
func (c *Controller) RunFiles(ctx context.Context) (map[string][]string, error) {
	runs, err := c.records.allRuns(ctx)
	if err != nil {
		return nil, err
	}
	files := map[string][]string{}
	for _, r := range runs {
		for _, n := range r.Nodes {
			for _, f := range n.Files {
				files[f.Digest] = append(files[f.Digest], fmt.Sprintf("run %d", r.ID))
			}
		}
	}
	return files, nil
}

// openRunsLocked is a copy: what was is compared with what became of it.
func (c *Controller) openRunsLocked() map[uint64]*kb.Run { return maps.Clone(c.records.runs.open) }
