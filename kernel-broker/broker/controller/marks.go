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

// wakeEvery is how often what is awake is decided on, besides after each poll: its times are in seconds, and polls are what it
// waits for. What is heard meanwhile is decided on at once, and does not cost what all others do that are on their way.
const wakeEvery = time.Second

// marks are what something was heard of since the last pass. The controller's lock is held.
type marks struct {
	scope plan.Scope
	all   bool
	// awake is what has to be decided on again, woken when it was last, and polled the view that it was then decided by.
	awake         plan.Scope
	woken, polled time.Time
	// flight is what the pass that is under way has decided on and not committed.
	flight plan.Scope
	swept  time.Time
}

func newMarks() marks { return marks{scope: plan.NewScope(), awake: plan.NewScope(), all: true} }

func (m *marks) node(name string) { m.scope.Nodes[name] = true }

func (m *marks) job(id kb.JobID) { m.scope.Jobs[id] = true }

// hears reports whether something was heard of a node that is not decided on and committed.
func (m *marks) hears(name string) bool {
	return m.all || m.scope.Nodes[name] || m.flight.Nodes[name]
}

// take empties the marks and returns what to decide on, by a view of slurmctld of this time; whether a sweep is due, which
// decides on everything all the same.
func (m *marks) take(r *records, now, polled time.Time) (scope plan.Scope, sweep bool) {
	scope = m.scope
	if m.all || polled.After(m.polled) || now.Sub(m.woken) >= wakeEvery {
		scope.Add(m.awake)
		m.awake, m.woken, m.polled = plan.NewScope(), now, polled
	}
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

// decided takes in what a decision on a scope wants to be decided on again.
func (m *marks) decided(scope plan.Scope, out plan.Output) {
	m.awake.Remove(scope)
	m.awake.Add(out.Awake)
	m.scope.Add(out.NextPass)
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
