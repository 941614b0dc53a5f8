// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// sweepEvery is how often everything is decided on. A change that shows only then was missed before: its node or job waited
// for this.
const sweepEvery = 10 * time.Minute

// marks are what something was heard of since the last pass. The controller's lock is held.
type marks struct {
	scope plan.Scope
	all   bool
	// awake is what the last pass wants to be decided on again.
	awake plan.Scope
	// flight is what the pass that is under way has decided on and not committed.
	flight plan.Scope
	swept  time.Time
}

func newMarks() marks { return marks{scope: plan.NewScope(), awake: plan.NewScope(), all: true} }

func (m *marks) node(name string) { m.scope.Nodes[name] = true }

func (m *marks) job(id kb.JobID) { m.scope.Jobs[id] = true }

// hears reports whether a node has something to be decided on.
func (m *marks) hears(name string) bool {
	return m.all || m.scope.Nodes[name] || m.awake.Nodes[name] || m.flight.Nodes[name]
}

// take empties the marks and returns what to decide on; whether a sweep is due, which decides on everything all the same.
func (m *marks) take(r *records, now time.Time) (scope plan.Scope, sweep bool) {
	scope = m.scope
	scope.Add(m.awake)
	scope.Close(r.nodes, r.allocs, r.jobsOf)
	all := m.all
	m.scope, m.all = plan.NewScope(), false
	if all {
		m.swept = now
		return plan.Everything(plan.Input{Nodes: r.nodes, Allocations: r.allocs}), false
	}
	if sweep = now.Sub(m.swept) >= sweepEvery; sweep {
		m.swept = now
	}
	return scope, sweep
}

// markAllLocked has the next pass decide on everything.
func (c *Controller) markAllLocked() {
	c.marks.all = true
	c.kickLocked()
}

// markViewLocked marks what slurmctld says otherwise than before.
func (c *Controller) markViewLocked(view kb.SlurmView) {
	jobs := map[uint32]bool{}
	view.Changed(c.view, c.marks.node, func(id uint32) { jobs[id] = true })
	for id := range c.records.allocs {
		if jobs[id.Job] {
			c.marks.job(id)
		}
	}
}

// jobsOf are the jobs on record that have a node or had it.
func (r *records) jobsOf(node string) []kb.JobID { return r.onNode[node] }

// indexNodes notes a job's nodes, or that it is closed.
func (r *records) indexNodes(a *kb.Allocation) {
	for _, name := range a.Had() {
		left := make([]kb.JobID, 0, len(r.onNode[name])+1)
		for _, id := range r.onNode[name] {
			if id != a.ID {
				left = append(left, id)
			}
		}
		if !a.Closed {
			left = append(left, a.ID)
		}
		if r.onNode[name] = left; len(left) == 0 {
			delete(r.onNode, name)
		}
	}
}
