// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Scope is what is decided on. Of everything else Decide returns nothing.
type Scope struct {
	Nodes map[string]bool
	Jobs  map[kb.JobID]bool
}

// NewScope is an empty one.
func NewScope() Scope { return Scope{Nodes: map[string]bool{}, Jobs: map[kb.JobID]bool{}} }

// Everything is all that is recorded.
func Everything(in Input) Scope {
	s := NewScope()
	for name := range in.Nodes {
		s.Nodes[name] = true
	}
	for id := range in.Allocations {
		s.Jobs[id] = true
	}
	return s
}

// Add adds another one.
func (s Scope) Add(other Scope) {
	maps.Copy(s.Nodes, other.Nodes)
	maps.Copy(s.Jobs, other.Jobs)
}

// Remove removes what another one has.
func (s Scope) Remove(other Scope) {
	for name := range other.Nodes {
		delete(s.Nodes, name)
	}
	for id := range other.Jobs {
		delete(s.Jobs, id)
	}
}

// Close adds what the nodes and jobs concern: a job is decided on with its nodes, and a node with the jobs that have it or had
// it last. What is not on record leaves. of returns the jobs on record of a node.
func (s Scope) Close(nodes map[string]*kb.Node, jobs map[kb.JobID]*kb.Allocation, of func(node string) []kb.JobID) {
	open, names := slices.Collect(maps.Keys(s.Jobs)), slices.Collect(maps.Keys(s.Nodes))
	job := func(id kb.JobID) {
		if jobs[id] != nil && !s.Jobs[id] {
			s.Jobs[id] = true
			open = append(open, id)
		}
	}
	for len(open)+len(names) > 0 {
		for _, name := range names {
			n := nodes[name]
			if n == nil {
				delete(s.Nodes, name)
				continue
			}
			job(n.Timeline)
			for _, id := range of(name) {
				job(id)
			}
		}
		names = names[:0]
		for _, id := range open {
			a := jobs[id]
			if a == nil {
				delete(s.Jobs, id)
				continue
			}
			for _, name := range a.Had() {
				if nodes[name] != nil && !s.Nodes[name] {
					s.Nodes[name] = true
					names = append(names, name)
				}
			}
		}
		open = open[:0]
	}
}

// JobsOf returns Close's index of records.
func JobsOf(jobs map[kb.JobID]*kb.Allocation) func(node string) []kb.JobID {
	index := map[string][]kb.JobID{}
	for id, a := range jobs {
		for _, name := range a.Had() {
			index[name] = append(index[name], id)
		}
	}
	return func(node string) []kb.JobID { return index[node] }
}

// awake is what has to be decided on again also if nothing is heard of it: it is on its way, or its time runs.
func (d *decision) awake() Scope {
	s := NewScope()
	for _, a := range d.out.Actions {
		for _, name := range append([]string{a.Node}, a.Nodes...) {
			if d.nodes[name] != nil {
				s.Nodes[name] = true
			}
		}
		if d.allocs[a.Job] != nil {
			s.Jobs[a.Job] = true
		}
	}
	for name, n := range d.nodes {
		if !d.rests(n) || d.unshown(n) {
			s.Nodes[name] = true
		}
	}
	for id, a := range d.allocs {
		if !a.Closed && (a.Phase != kb.PhaseReady || !a.Seen) {
			s.Jobs[id] = true
		}
	}
	return s
}

// nextPass is what the next pass decides on, however soon it comes: records that have changed, and nodes that are kept, since
// reservations are decided on all together.
func (d *decision) nextPass() Scope {
	s := NewScope()
	for _, n := range d.out.Nodes {
		s.Nodes[n.Name] = true
	}
	for _, a := range d.out.Allocations {
		s.Jobs[a.ID] = true
	}
	for name, n := range d.nodes {
		if n.KeptFor != "" {
			s.Nodes[name] = true
		}
	}
	return s
}

// rests reports whether nothing becomes of a node by time alone.
func (d *decision) rests(n *kb.Node) bool {
	agent := d.in.Agents[n.Name]
	switch {
	case n.Pending != nil, n.Failure != nil, len(n.Faults) > 0, n.Slurm.Restore != nil, n.Reboot != nil, d.held[n.Name],
		n.KeptFor != "", n.Slurm.PoweredOffBoot != "", !n.RetryAt.IsZero(), !n.LeftAt.IsZero(),
		n.Slurm.Awaited != kb.SlurmBoot{}, n.Slurm.Requested.Phase == kb.BootAsked, agent.Ending != 0:
		return false
	case !n.Owner.IsZero():
		return n.Steady() && agent.Connected && !d.hasLost(n)
	case managed(n):
		return n.Desired.IsStock() && n.Runs(stockRef) && (n.Slurm.Service.State == kb.ServiceIn || n.Slurm.Service.Author == kb.AuthorAdministrator)
	}
	return !agent.Connected
}
