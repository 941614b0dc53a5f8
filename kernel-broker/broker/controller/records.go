// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const (
	nodePrefix = "nodes/"
	jobPrefix  = "jobs/"
)

func nodeKey(name string) string { return nodePrefix + name }

func jobKey(id kb.JobID) string { return fmt.Sprintf("%s%010d/%06d", jobPrefix, id.Job, id.Restart) }

// records are the broker's records as the store has them, with revisions.
type records struct {
	store     store.Store
	nodes     map[string]*kb.Node
	allocs    map[kb.JobID]*kb.Allocation // those with something left to do
	runs      runRecords
	revisions map[string]int64
	// What the store has, also of what is over.
	jobIndex, runIndex index
	// limit of one record in bytes; 0: the store's. For tests.
	limit int
}

// load reads everything from the store.
func (r *records) load(ctx context.Context) error {
	nodes, allocs, revisions := map[string]*kb.Node{}, map[kb.JobID]*kb.Allocation{}, map[string]int64{}
	list, _, err := r.store.List(ctx, nodePrefix)
	if err != nil {
		return fmt.Errorf("records of nodes: %w", err)
	}
	for _, rec := range list {
		n, err := decodeNode(rec)
		if err != nil {
			return err
		}
		nodes[n.Name], revisions[rec.Key] = n, rec.Revision
	}
	var jobs []entry
	err = eachRecord(ctx, r.store, jobPrefix, func(rec store.Record) error {
		a, err := decodeJob(rec)
		if err != nil {
			return err
		}
		jobs = append(jobs, entry{rec.Key, a.ID, a.UID})
		if !a.Closed {
			allocs[a.ID], revisions[rec.Key] = a, rec.Revision
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("records of jobs: %w", err)
	}
	runs, entries, err := loadRuns(ctx, r.store, revisions)
	if err != nil {
		return err
	}
	r.jobIndex.replace(jobs)
	r.runIndex.replace(entries)
	r.nodes, r.allocs, r.runs, r.revisions = nodes, allocs, runs, revisions
	return nil
}

// commit writes changed records, each fenced by the revision it was read at.
// On any error the caller must load again: the outcome may be unknown. Only where
// a record is too large is nothing written.
func (r *records) commit(ctx context.Context, nodes []*kb.Node, allocs []*kb.Allocation, runs ...*kb.Run) error {
	var writes []store.Write
	add := func(key string, value any) error {
		data, err := encode(key, value)
		if err == nil {
			err = r.check(key, len(data))
		}
		if err != nil {
			return err
		}
		writes = append(writes, store.Write{Key: key, Value: data, Expect: r.revisions[key]})
		return nil
	}
	// First: an allocation that names a run must find it.
	for _, run := range runs {
		if err := add(runKey(run.ID), run); err != nil {
			return err
		}
	}
	for _, a := range allocs {
		if err := add(jobKey(a.ID), a); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := add(nodeKey(n.Name), n); err != nil {
			return err
		}
	}
	for _, part := range split(writes) {
		revision, err := r.store.Commit(ctx, part...)
		if err != nil {
			return err
		}
		for _, w := range part {
			r.revisions[w.Key] = revision
		}
	}
	for _, n := range nodes {
		r.nodes[n.Name] = n
	}
	r.keepRuns(runs)
	for _, a := range allocs {
		r.allocs[a.ID] = a
		r.jobIndex.put(entry{jobKey(a.ID), a.ID, a.UID})
		if a.Closed {
			delete(r.allocs, a.ID)
			delete(r.revisions, jobKey(a.ID))
		}
	}
	return nil
}

// split keeps commits below what a store takes. Every record is consistent by
// itself, so they need not change all at once.
func split(writes []store.Write) [][]store.Write {
	var parts [][]store.Write
	size := 0
	for i, w := range writes {
		size += len(w.Key) + len(w.Value)
		if i == 0 || len(parts[len(parts)-1]) == store.MaxWrites/2 || size > store.MaxCommitBytes/2 {
			parts, size = append(parts, nil), len(w.Key)+len(w.Value)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], w)
	}
	return parts
}

// job reads one run of a job, also a closed one. A nil restart means the newest.
func (r *records) job(ctx context.Context, job uint32, restart *uint32) (*kb.Allocation, error) {
	key := ""
	if restart != nil {
		key = jobKey(kb.JobID{Job: job, Restart: *restart})
	} else {
		prefix := strings.TrimSuffix(jobKey(kb.JobID{Job: job}), "000000")
		if key = r.jobIndex.last(prefix); key == "" {
			if err := r.nothing(ctx, prefix); err != nil {
				return nil, fmt.Errorf("job %d: %w", job, err)
			}
			return nil, fmt.Errorf("job %d never asked for a kernel: %w", job, kb.ErrNotFound)
		}
	}
	rec, err := r.store.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound) && restart != nil:
		return nil, fmt.Errorf("job %d, restart %d: %w", job, *restart, kb.ErrNotFound)
	case errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("job %d is forgotten by now: %w", job, kb.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("job %d: %w: %w", job, kb.ErrUnavailable, err)
	}
	return decodeJob(rec)
}

// run reads one run of a job with its revision; nil when there is none.
func (r *records) run(ctx context.Context, id kb.JobID) (*kb.Allocation, int64, error) {
	rec, err := r.store.Get(ctx, jobKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("job %d: %w: %w", id.Job, kb.ErrUnavailable, err)
	}
	a, err := decodeJob(rec)
	return a, rec.Revision, err
}

func decodeNode(rec store.Record) (*kb.Node, error) {
	n := new(kb.Node)
	if err := decode(rec, n, func() string { return nodeKey(n.Name) }); err != nil {
		return nil, err
	}
	return n, nil
}

func decodeJob(rec store.Record) (*kb.Allocation, error) {
	a := new(kb.Allocation)
	if err := decode(rec, a, func() string { return jobKey(a.ID) }); err != nil {
		return nil, err
	}
	return a, nil
}

// jobs reads the newest runs, newest first; of one user, if of is not nil.
func (r *records) jobs(ctx context.Context, limit int, of *uint32) ([]*kb.Allocation, error) {
	var list []*kb.Allocation
	var err error
	if of == nil {
		list, err = newest(ctx, r, &r.jobIndex, jobPrefix, limit, decodeJob)
	} else {
		list, err = about(ctx, r, &r.jobIndex, jobPrefix, limit, func(e entry) bool { return e.uid == *of }, decodeJob)
	}
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return list, nil
}

// prune forgets the oldest closed jobs beyond keep.
func (r *records) prune(ctx context.Context, keep int) error {
	err := r.forget(ctx, &r.jobIndex, keep, func(rec store.Record) (bool, error) {
		a, err := decodeJob(rec)
		return err == nil && a.Closed, err
	})
	if err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	return nil
}
