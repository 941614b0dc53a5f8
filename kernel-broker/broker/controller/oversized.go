// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const (
	// What is left of a timeline in a record that is too large, first and last.
	shortTimeline = 32 << 10
	leastTimeline = 2 << 10
	// unwritten says that nothing helped.
	unwritten = "it is not written"
)

// most is how large one record may be, with its key.
func (r *records) most() int { return r.store.Limits().Bytes }

// check refuses a record that no store takes.
func (r *records) check(key string, size int) error {
	if size += len(key); size > r.most() {
		return fmt.Errorf("record %q has %d bytes, at most %d: %w", key, size, r.most(), store.ErrTooLarge)
	}
	return nil
}

// hasRoomFor refuses a job whose record has no room for what is to come: a job that
// was accepted can always be failed.
func (r *records) hasRoomFor(a *kb.Allocation) error {
	data, err := record.Encode(jobKey(a.ID), a)
	if err != nil {
		return err
	}
	if most := r.most() / 8 * 7; len(data) > most {
		return fmt.Errorf("job %s on %d nodes: the broker's record of it has %d bytes, at most %d; ask for fewer nodes: %w",
			a.ID, len(a.Nodes), len(data), most, kb.ErrFailedPrecondition)
	}
	return nil
}

// fit makes the records of a decision small enough for the store, and returns
// what was done about which. One that is too large costs its own job something,
// and nobody else: it is left out of the decision when nothing helps. That such a
// job has failed is then known only here, for as long as the broker runs, so that
// it is held all the same.
func (r *records) fit(now time.Time, out *plan.Output) map[string]string {
	done := map[string]string{}
	fits := func(key string, value any) bool {
		data, err := record.Encode(key, value)
		return err != nil || r.check(key, len(data)) == nil // the commit returns such an error
	}
	leftOut := func(key string, value any, steps ...reduction) bool {
		for _, step := range steps {
			if fits(key, value) {
				return false
			}
			step.do()
			done[key] = step.did
		}
		if fits(key, value) {
			return false
		}
		done[key] = unwritten
		return true
	}
	out.Nodes = slices.DeleteFunc(out.Nodes, func(n *kb.Node) bool { return leftOut(nodeKey(n.Name), n) })
	out.Runs = slices.DeleteFunc(out.Runs, func(run *kb.Run) bool {
		return leftOut(runKey(run.ID), run, reduction{"the run is failed", func() {
			run.Nodes = nil
			run.Enter(kb.RunFailed, now, "its record is too large")
		}})
	})
	out.Allocations = slices.DeleteFunc(out.Allocations, func(a *kb.Allocation) bool {
		gone := leftOut(jobKey(a.ID), a,
			reduction{"what its nodes ran is left out", func() { omitNodeHistory(a, now) }},
			reduction{"the job is failed", func() { failOversized(a, now) }})
		if gone {
			r.allocs[a.ID] = a
		}
		if gone && a.Closed {
			delete(r.allocs, a.ID)
		}
		return gone
	})
	return done
}

// reduction makes a record smaller, and says how.
type reduction struct {
	did string
	do  func()
}

// omitNodeHistory leaves out what the nodes of a job ran.
func omitNodeHistory(a *kb.Allocation, now time.Time) {
	if !a.Brief {
		a.Note(now, "", "brief", "the record has no room for what each node ran")
	}
	a.Brief, a.Before, a.During, a.After = true, nil, nil, nil
	a.Shorten(shortTimeline)
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
	for key, did := range c.records.fit(now, out) {
		if c.oversized[key] != did {
			c.oversized[key] = did
			c.log.Error("record too large for the store", "record", key, "done", did)
		}
	}
	return c.records.commitAll(ctx, hardware, out.Nodes, out.Allocations, out.Runs...)
}
