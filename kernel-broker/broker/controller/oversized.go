// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// What is left of a timeline in a record that is too large, first and last.
const (
	shortTimeline = 32 << 10
	leastTimeline = 2 << 10
)

// most is how large one record may be, with its key.
func (r *records) most() int {
	if r.limit != 0 {
		return r.limit
	}
	return store.MaxCommitBytes
}

// check refuses a record that no store takes.
func (r *records) check(key string, size int) error {
	if size += len(key); size > r.most() {
		return fmt.Errorf("record %q has %d bytes, at most %d: %w", key, size, r.most(), store.ErrTooLarge)
	}
	return nil
}

// holds refuses a job whose record has no room for what is to come: a job that
// was accepted can always be failed.
func (r *records) holds(a *kb.Allocation) error {
	data, err := encode(jobKey(a.ID), a)
	if err != nil {
		return err
	}
	if most := r.most() / 8 * 7; len(data) > most {
		return fmt.Errorf("job %s on %d nodes: the broker's record of it has %d bytes, at most %d; ask for fewer nodes: %w",
			a.ID, len(a.Nodes), len(data), most, kb.ErrFailedPrecondition)
	}
	return nil
}

// oversizedRecord is a record that was too large, and what was done about that.
type oversizedRecord struct{ key, did string }

// unwritten says that nothing helped.
const unwritten = "it is not written"

// shrinkAll makes the records of a decision small enough for the store. One that is
// too large costs its own job something, and nobody else: it is left out of the
// decision when nothing helps. That such a job has failed is then known only
// here, for as long as the broker runs, so that it is held all the same.
func (r *records) shrinkAll(now time.Time, out *plan.Output) ([]oversizedRecord, error) {
	var done []oversizedRecord
	note := func(key, did string) bool {
		if did != "" {
			done = append(done, oversizedRecord{key, did})
		}
		return did != unwritten
	}
	var nodes []*kb.Node
	for _, n := range out.Nodes {
		did, err := r.shrink(nodeKey(n.Name), n)
		if err != nil {
			return nil, err
		}
		if note(nodeKey(n.Name), did) {
			nodes = append(nodes, n)
		}
	}
	var allocs []*kb.Allocation
	for _, a := range out.Allocations {
		did, err := r.shrink(jobKey(a.ID), a,
			reduction{"its timeline is short", func() { a.Shorten(shortTimeline) }},
			reduction{"what its nodes ran is left out", func() { omitNodeHistory(a, now) }},
			reduction{"the job is failed", func() { failOversized(a, now) }})
		if err != nil {
			return nil, err
		}
		if note(jobKey(a.ID), did) {
			allocs = append(allocs, a)
		} else if r.allocs[a.ID] = a; a.Closed {
			delete(r.allocs, a.ID)
		}
	}
	var runs []*kb.Run
	for _, run := range out.Runs {
		did, err := r.shrink(runKey(run.ID), run, reduction{"the run is failed", func() {
			run.Nodes = nil
			run.Enter(kb.RunFailed, now, "its record is too large")
		}})
		if err != nil {
			return nil, err
		}
		if note(runKey(run.ID), did) {
			runs = append(runs, run)
		}
	}
	out.Nodes, out.Allocations, out.Runs = nodes, allocs, runs
	return done, nil
}

// omitNodeHistory leaves out what the nodes of a job ran.
func omitNodeHistory(a *kb.Allocation, now time.Time) {
	if !a.Brief {
		a.Note(now, "", "brief", "the record has no room for what each node ran")
	}
	a.Brief, a.Before, a.During, a.After = true, nil, nil, nil
}

// failOversized fails a job that waits for its kernel. One that runs goes on: its nodes
// come back without a record of how.
func failOversized(a *kb.Allocation, now time.Time) {
	if a.Switching() {
		a.Reason, a.Hold = fmt.Sprintf("the broker's record of the job, which is on %d nodes, is too large for its store", len(a.Nodes)), true
		a.Enter(kb.PhaseFailed, now, a.Reason)
	}
	a.Shorten(leastTimeline)
}

// reduction makes a record smaller, and says how.
type reduction struct {
	did string
	do  func()
}

// shrink makes a record smaller until it can be written, step by step, and says
// what the last step was; nothing if there was no need.
func (r *records) shrink(key string, value any, steps ...reduction) (did string, err error) {
	for i := 0; ; i++ {
		data, err := encode(key, value)
		if err != nil {
			return "", err
		}
		if r.check(key, len(data)) == nil {
			return did, nil
		}
		if i == len(steps) {
			return unwritten, nil
		}
		steps[i].do()
		did = steps[i].did
	}
}

// commitLocked writes what was decided. It changes the decision where a record
// is too large.
func (c *Controller) commitLocked(ctx context.Context, now time.Time, out *plan.Output) error {
	hardware := c.records.ledger.fold(out.Tries, out.UsedRules, c.o.ReturnRuleAfter, now)
	for _, rule := range hardware.made {
		c.log.Warn("returns by kexec fail on this hardware, nodes reboot instead", "rule", rule.Name, "board", rule.Board, "kernel", rule.Kernel, "reason", rule.Reason)
	}
	err := c.records.commitAll(ctx, hardware, out.Nodes, out.Allocations, out.Runs...)
	if !errors.Is(err, store.ErrTooLarge) {
		return err
	}
	done, err := c.records.shrinkAll(now, out)
	if err != nil {
		return err
	}
	for _, m := range done {
		if c.oversized[m.key] != m.did {
			c.oversized[m.key] = m.did
			c.log.Error("record too large for the store", "record", m.key, "done", m.did)
		}
	}
	return c.records.commitAll(ctx, hardware, out.Nodes, out.Allocations, out.Runs...)
}
