// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const (
	nodePrefix = "nodes/"
	jobPrefix  = "jobs/"
)

func nodeKey(name string) string { return nodePrefix + name }

func jobKey(id kb.JobID) string { return fmt.Sprintf("%s%010d/%06d", jobPrefix, id.Job, id.Restart) }

var (
	nodeKind = record.Kind[kb.Node]{
		Prefix: nodePrefix,
		Entry:  func(n *kb.Node) record.Entry { return record.Entry{Key: nodeKey(n.Name)} },
		Before: nodeFromBefore,
	}
	jobKind = record.Kind[kb.Allocation]{
		Prefix: jobPrefix,
		Entry: func(a *kb.Allocation) record.Entry {
			return record.Entry{Key: jobKey(a.ID), Job: a.ID, UID: a.UID, Made: a.Created, Open: !a.Closed}
		},
		Over: func(a *kb.Allocation) bool { return a.Closed },
	}
	runKind = record.Kind[kb.Run]{
		Prefix: runPrefix,
		Entry: func(r *kb.Run) record.Entry {
			return record.Entry{Key: runKey(r.ID), Job: r.Job, UID: r.UID, Bytes: fileBytes(r), Open: !r.Over()}
		},
		Over: (*kb.Run).Over,
	}
)

// records are the broker's records as the store has them, with revisions.
type records struct {
	store     store.Store
	history   *history.Journal // nil: no events are kept
	now       func() time.Time
	nodes     map[string]*kb.Node
	allocs    map[kb.JobID]*kb.Allocation // those with something left to do
	onNode    map[string][]kb.JobID       // of them, by node
	begun     map[string]kb.BegunBoot
	runs      runRecords
	ledger    ledger
	revisions map[string]int64
	// away does what takes long without the lock of whoever reads these records; nil: there is none.
	away func(func())
	// What the store has, also of what is over.
	jobIndex, runIndex record.Index
}

// load reads everything from the store.
func (r *records) load(ctx context.Context) error {
	nodes, allocs, revisions := map[string]*kb.Node{}, map[kb.JobID]*kb.Allocation{}, map[string]int64{}
	err := nodeKind.Each(ctx, r.store, func(n *kb.Node, rec store.Record) {
		nodes[n.Name], revisions[nodeKey(n.Name)] = n, rec.Revision
	})
	if err != nil {
		return err
	}
	var jobs, entries []record.Entry
	err = jobKind.Each(ctx, r.store, func(a *kb.Allocation, rec store.Record) {
		e := jobKind.Entry(a)
		e.Bytes = int64(len(rec.Value))
		jobs = append(jobs, e)
		if !a.Closed {
			allocs[a.ID], revisions[jobKey(a.ID)] = a, rec.Revision
		}
	})
	if err != nil {
		return err
	}
	runs := runRecords{open: map[uint64]*kb.Run{}, next: 1}
	err = runKind.Each(ctx, r.store, func(run *kb.Run, rec store.Record) {
		entries = append(entries, runKind.Entry(run))
		runs.next = max(runs.next, run.ID+1)
		if !run.Over() {
			runs.open[run.ID], revisions[runKey(run.ID)] = run, rec.Revision
		}
	})
	if err != nil {
		return err
	}
	begun, err := loadBegun(ctx, r.store, revisions)
	if err != nil {
		return err
	}
	hardware, err := loadLedger(ctx, r.store, revisions)
	if err != nil {
		return err
	}
	r.ledger, r.begun = hardware, begun
	r.jobIndex.Replace(jobs)
	r.runIndex.Replace(entries)
	r.nodes, r.allocs, r.runs, r.revisions = nodes, allocs, runs, revisions
	r.onNode = map[string][]kb.JobID{}
	for _, a := range allocs {
		r.indexNodes(a)
	}
	return nil
}

// commit writes changed records, each fenced by the revision it was read at.
// On any error the caller must load again: the outcome may be unknown. Only where
// a record is too large is nothing written.
func (r *records) commit(ctx context.Context, nodes []*kb.Node, allocs []*kb.Allocation, runs ...*kb.Run) error {
	return r.commitAll(ctx, ledgerChange{}, nodes, allocs, runs...)
}

// commitAll is commit with a change of the hardware ledger.
func (r *records) commitAll(ctx context.Context, hardware ledgerChange, nodes []*kb.Node, allocs []*kb.Allocation, runs ...*kb.Run) error {
	var writes []store.Write
	sizes := map[string]int{}
	add := func(key string, value any) error {
		data, err := record.Encode(key, value)
		if err == nil {
			err = r.check(key, len(data))
		}
		if err != nil {
			return err
		}
		sizes[key] = len(data)
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
	// Last: of a commit that has to be split, a try may be lost, and is never counted twice.
	more, err := hardware.writes(r.revisions)
	if err != nil {
		return err
	}
	// Every record is consistent by itself, so they need not change all at once.
	revisions, err := r.write(ctx, store.Split(append(writes, more...), r.store.Limits()), r.told(ctx, hardware, nodes, allocs))
	maps.Copy(r.revisions, revisions)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		r.nodes[n.Name] = n
	}
	r.keepRuns(runs)
	r.keepLedger(hardware)
	for _, a := range allocs {
		r.allocs[a.ID] = a
		r.indexNodes(a)
		e := jobKind.Entry(a)
		e.Bytes = int64(sizes[e.Key])
		r.jobIndex.Put(e)
		if a.Closed {
			delete(r.allocs, a.ID)
			delete(r.revisions, jobKey(a.ID))
		}
	}
	return nil
}

// write commits one part after another, each with the events of its records, and returns the revisions of what was written.
func (r *records) write(ctx context.Context, parts [][]store.Write, events told) (revisions map[string]int64, err error) {
	revisions = map[string]int64{}
	commit := func() {
		for _, part := range parts {
			var revision int64
			if revision, err = r.commitPart(ctx, part, events); err != nil {
				return
			}
			for _, w := range part {
				revisions[w.Key] = revision
			}
		}
	}
	if r.away == nil || len(parts) == 0 {
		commit()
		return revisions, err
	}
	r.away(commit)
	return revisions, err
}

// job reads one run of a job, also a closed one. A nil restart means the newest.
func (r *records) job(ctx context.Context, job uint32, restart *uint32) (*kb.Allocation, error) {
	key := ""
	if restart != nil {
		key = jobKey(kb.JobID{Job: job, Restart: *restart})
	} else {
		prefix := strings.TrimSuffix(jobKey(kb.JobID{Job: job}), "000000")
		if key = r.jobIndex.Last(prefix); key == "" {
			if err := record.CheckReachable(ctx, r.store, prefix); err != nil {
				return nil, fmt.Errorf("job %d: %w", job, err)
			}
			return nil, fmt.Errorf("job %d never asked for a kernel: %w", job, kb.ErrNotFound)
		}
	}
	a, _, err := jobKind.Get(ctx, r.store, key)
	switch {
	case errors.Is(err, kb.ErrNotFound) && restart != nil:
		return nil, fmt.Errorf("job %d, restart %d: %w", job, *restart, err)
	case errors.Is(err, kb.ErrNotFound):
		return nil, fmt.Errorf("the record of job %d was pruned: %w", job, err)
	case err != nil:
		return nil, fmt.Errorf("job %d: %w", job, err)
	}
	return a, nil
}

// run reads one run of a job with its revision; nil when there is none.
func (r *records) run(ctx context.Context, id kb.JobID) (*kb.Allocation, int64, error) {
	a, revision, err := jobKind.Get(ctx, r.store, jobKey(id))
	if errors.Is(err, kb.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("job %d: %w", id.Job, err)
	}
	return a, revision, nil
}

// jobs reads the newest runs, newest first; of one user, if of is not nil.
func (r *records) jobs(ctx context.Context, limit int, of *uint32) ([]*kb.Allocation, error) {
	return jobKind.List(ctx, r.store, &r.jobIndex, limit, func(e record.Entry) bool { return of == nil || e.UID == *of })
}
