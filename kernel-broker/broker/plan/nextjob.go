// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"sort"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// next is the first pending job for an ending job's nodes, and those of them that it
// can run on, if it wants the kernel that they run. In
// doubt there is none: the nodes return, and Slurm decides who has them.
func (d *decision) next(a *kb.Allocation) (kb.SlurmJob, []string, bool) {
	first, ok := d.first(a)
	if !ok {
		return kb.SlurmJob{}, nil, false
	}
	ref, ok := first.Requested()
	if !ok || first.NodeCount == 0 {
		return kb.SlurmJob{}, nil, false
	}
	resolved, err := d.in.Catalog.Resolve(ref)
	if err != nil || resolved != a.Kernel.Ref() {
		return kb.SlurmJob{}, nil, false
	}
	// Whether another user's job may use it is asked when it has its nodes. What
	// waits for it must not be the very kernel that it may not have.
	if first.UID != a.UID && d.in.Catalog.Restricted(resolved.Profile) {
		return kb.SlurmJob{}, nil, false
	}
	nodes := d.suits(first, a)
	return first, nodes, nodes != nil
}

// first is the job that Slurm considers before all others that could get one of
// the nodes: jobs of partitions without them, and those that wait for nodes of a
// reservation of their own, are left out.
func (d *decision) first(a *kb.Allocation) (kb.SlurmJob, bool) {
	claimed := map[string]bool{}
	for _, n := range d.nodes {
		claimed[n.KeptFor] = true
	}
	partitions := map[string]bool{}
	for _, name := range a.Nodes {
		s, _ := d.slurmNode(name)
		for _, p := range s.Partitions {
			partitions[p] = true
		}
	}
	var queue []kb.SlurmJob
	for _, j := range d.in.Slurm.Queue {
		if j.Pending() && !claimed[j.Reference] && j.Reservation == "" &&
			slices.ContainsFunc(j.Partitions(), func(p string) bool { return partitions[p] }) {
			queue = append(queue, j)
		}
	}
	if len(queue) == 0 {
		return kb.SlurmJob{}, false
	}
	sort.Slice(queue, func(i, k int) bool { return queue[i].Before(queue[k]) })
	return queue[0], true
}

// suits picks the nodes of an ending job on which another one can run as it asked
// to; nil where there are too few, or where that cannot be said.
func (d *decision) suits(j kb.SlurmJob, a *kb.Allocation) []string {
	if j.Demand == nil || j.Demand.Unevaluated != "" {
		return nil
	}
	for _, partition := range j.Partitions() {
		var nodes []string
		for _, name := range a.Nodes {
			if d.suitable(j.Demand, partition, a, name) {
				nodes = append(nodes, name)
			}
		}
		// Those that it must have come first.
		must := j.Demand.Required
		slices.SortStableFunc(nodes, func(x, y string) int { return rank(must, x) - rank(must, y) })
		if len(nodes) < int(j.NodeCount) {
			continue
		}
		nodes = nodes[:j.NodeCount]
		if d.enough(j.Demand, nodes) && !slices.ContainsFunc(must, func(name string) bool { return !slices.Contains(nodes, name) }) {
			return nodes
		}
	}
	return nil
}

func rank(first []string, name string) int {
	if slices.Contains(first, name) {
		return 0
	}
	return 1
}

// suitable reports whether a node that an allocation gives up meets what a job
// asks of each of its nodes.
func (d *decision) suitable(demand *kb.SlurmDemand, partition string, a *kb.Allocation, name string) bool {
	n := d.nodes[name]
	s, known := d.slurmNode(name)
	if n == nil || !known || n.Timeline != a.ID || !n.Steady() || !n.Runs(a.Kernel.Ref()) || n.Failure != nil || n.Slurm.Restore != nil ||
		n.Reboot != nil || s.Reserved() || s.Down() {
		return false
	}
	if !slices.Contains(s.Partitions, partition) || slices.Contains(demand.Excluded, name) {
		return false
	}
	return demand.CPUs <= s.CPUs && demand.MemoryMiB <= s.MemoryMiB &&
		!slices.ContainsFunc(demand.Features, func(f string) bool { return !slices.Contains(s.Features, f) })
}

// enough reports whether nodes have the CPUs that a job asks for in all.
func (d *decision) enough(demand *kb.SlurmDemand, nodes []string) bool {
	var cpus uint64
	for _, name := range nodes {
		s, _ := d.slurmNode(name)
		cpus += s.CPUs
	}
	return demand.AllCPUs <= cpus
}

// whyKeptJobFails says why the job that a node is kept for does not come, or cannot be
// given it alone; nothing while it may.
func (d *decision) whyKeptJobFails(n *kb.Node) string {
	if n.Slurm.Restore != nil {
		return "it is taken out of service"
	}
	if !d.in.Slurm.At.After(n.KeptUntil.Add(-d.in.Config.KeepLimit)) {
		return ""
	}
	name := ReservationName(n.KeptFor)
	waits := false
	for _, j := range d.in.Slurm.Queue {
		switch {
		case j.Reference == n.KeptFor:
			waits = j.Pending()
		case slices.Contains(strings.Split(j.Reservation, ","), name):
			return "job " + j.Reference + " asks for the reservation too"
		}
	}
	for _, j := range d.in.Slurm.Jobs {
		if j.Reference == n.KeptFor && j.Holds() {
			waits = waits || j.Unread != "" || slices.Contains(j.Nodes, n.Name)
		}
	}
	if !waits {
		return "job " + n.KeptFor + " waits for it no more"
	}
	return ""
}
