// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"reflect"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// decision is one run of Decide over private copies of the records that it decides on.
type decision struct {
	in     Input
	nodes  map[string]*kb.Node
	allocs map[kb.JobID]*kb.Allocation
	out    Output
	// owners maps a node to the allocation that holds it.
	owners map[string]*kb.Allocation
	order  []string
	// runs are the profiling runs; nextRun is the number of the next one.
	runs    map[uint64]*kb.Run
	nextRun uint64
	// arms are the nodes to arm, and held those whose slurmd may not start before slurmctld has said or heard something.
	arms []string
	// labels are the nodes whose reason is to be set, by the text.
	labels map[string][]string
	held   map[string]bool
}

// Decide returns what must change and what is to be done.
func Decide(in Input) Output {
	var scope Scope
	if in.Scope != nil {
		scope = *in.Scope
	} else {
		scope = Everything(in)
	}
	d := &decision{
		labels: map[string][]string{},
		in:     in,
		nodes:  make(map[string]*kb.Node, len(scope.Nodes)),
		allocs: make(map[kb.JobID]*kb.Allocation, len(scope.Jobs)),
		runs:   make(map[uint64]*kb.Run, len(in.Runs)), nextRun: in.NextRun,
		held: map[string]bool{},
		out:  Output{Kept: map[string]bool{}, Held: map[kb.JobID]Hold{}},
	}
	for id, r := range in.Runs {
		d.runs[id] = r.Clone()
	}
	for name := range scope.Nodes {
		d.nodes[name] = in.Nodes[name].Clone()
	}
	for id := range scope.Jobs {
		d.allocs[id] = in.Allocations[id].Clone()
	}
	d.order = slices.Sorted(maps.Keys(d.nodes))
	ids := slices.SortedFunc(maps.Keys(d.allocs), kb.JobID.Compare)

	d.receipts()
	for _, id := range ids {
		d.shrink(d.allocs[id])
	}
	d.assignOwners(ids)
	for _, name := range d.order {
		d.node(d.nodes[name], in.Agents[name])
	}
	for _, id := range ids {
		d.allocation(d.allocs[id])
	}
	d.assignOwners(ids)
	for _, name := range d.order {
		n := d.nodes[name]
		if managed(n) || in.Agents[name].Connected {
			d.desired(n)
		}
	}
	d.begunBoots()
	d.holds()
	d.runRecords(ids)
	d.armAll()
	d.labelAll()
	d.features()
	d.endings()
	d.reservations()
	d.collect(ids)
	d.out.Awake, d.out.NextPass = d.awake(), d.nextPass()
	return d.out
}

// assignOwners finds who holds each node. The newest allocation wins, should
// an older one not have been seen to end yet.
func (d *decision) assignOwners(ids []kb.JobID) {
	d.owners = map[string]*kb.Allocation{}
	for _, id := range ids {
		a := d.allocs[id]
		if !a.Holds() {
			continue
		}
		for _, name := range a.Nodes {
			if d.left(a, name) {
				continue
			}
			if have := d.owners[name]; have == nil || a.Created.After(have.Created) {
				d.owners[name] = a
			}
		}
	}
}

func (d *decision) owner(n *kb.Node) *kb.Allocation { return d.owners[n.Name] }

// age of what began then, as far as this broker can tell.
func (d *decision) age(since time.Time) time.Duration { return d.in.Now.Sub(later(since, d.in.Began)) }

// act asks for an action.
func (d *decision) act(a Action) {
	if replaces[a.Kind] {
		for _, name := range append([]string{a.Node}, a.Nodes...) {
			if s, ok := d.slurmNode(name); ok {
				a.Seen = append(a.Seen, s)
			}
		}
	}
	d.out.Actions = append(d.out.Actions, a)
}

// note writes to the timeline that the node's events belong to.
func (d *decision) note(n *kb.Node, event, detail string) {
	if a := d.allocs[n.Timeline]; a != nil {
		a.Note(d.in.Now, n.Name, event, detail)
	}
}

// collect returns the records that differ from what was recorded.
func (d *decision) collect(ids []kb.JobID) {
	for _, name := range d.order {
		n := d.nodes[name]
		if d.tell(n); !reflect.DeepEqual(n, d.in.Nodes[name]) {
			d.out.Nodes = append(d.out.Nodes, n)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.runs)) {
		if old := d.in.Runs[id]; old == nil || !reflect.DeepEqual(d.runs[id], old.Clone()) {
			d.out.Runs = append(d.out.Runs, d.runs[id])
		}
	}
	for _, id := range ids {
		if !reflect.DeepEqual(d.allocs[id], d.in.Allocations[id].Clone()) {
			d.out.Allocations = append(d.out.Allocations, d.allocs[id])
		}
	}
}

// slurmNode returns a node as slurmctld has it.
func (d *decision) slurmNode(name string) (kb.SlurmNode, bool) {
	n, ok := d.in.Slurm.Nodes[name]
	return n, ok
}

// slurmJob returns an allocation's job as slurmctld has it, if it is still this
// run of it.
func (d *decision) slurmJob(a *kb.Allocation) (kb.SlurmJob, bool) {
	j, ok := d.in.Slurm.Jobs[a.ID.Job]
	if !ok || j.Restart != a.ID.Restart {
		return kb.SlurmJob{}, false
	}
	return j, true
}

// jobHas reports whether this run of a job holds a node in Slurm.
func (d *decision) jobHas(id kb.JobID, node string) bool {
	j, ok := d.in.Slurm.Jobs[id.Job]
	return ok && j.Restart == id.Restart && j.Holds() && slices.Contains(j.Nodes, node)
}

// inJob reports whether any job holds a node in Slurm.
func (d *decision) inJob(node string) bool {
	return slices.ContainsFunc(d.in.Slurm.On(node), func(j kb.SlurmJob) bool { return j.Holds() })
}

// gone reports whether slurmctld, asked after the allocation was made, no
// longer holds the nodes for this run of the job.
func (d *decision) gone(a *kb.Allocation) bool {
	if !d.in.Slurm.At.After(a.Created) {
		return false
	}
	j, ok := d.slurmJob(a)
	return !ok || !j.Holds()
}
