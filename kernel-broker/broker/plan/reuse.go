// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// endings answers the epilogs that wait, and keeps nodes for the next job when
// it wants the same kernel.
func (d *decision) endings() {
	for _, name := range d.order {
		n := d.nodes[name]
		job := d.in.Agents[name].Ending
		if job == 0 {
			continue
		}
		a := d.allocs[n.Timeline]
		if a == nil || a.ID.Job != job || n.Failure != nil || a.Phase == kb.PhaseFailed || !n.Steady() || !a.Has(name) {
			d.out.Kept[name] = false
			continue
		}
		if n.KeptFor == "" {
			if !d.in.Slurm.Commented || !d.in.Slurm.At.After(d.in.Agents[name].EndingSince) {
				continue // the choice needs a poll that began after the question
			}
			if !d.handOver(a) || n.KeptFor == "" {
				d.out.Kept[name] = false
				continue
			}
		}
		s, _ := d.slurmNode(name)
		if !s.Armed() && d.reserved(n) {
			d.out.Kept[name] = true
		}
	}
}

// handOver keeps the nodes of an ending job for the next pending one.
func (d *decision) handOver(a *kb.Allocation) bool {
	if a.HandedTo != "" || a.Reuse != kb.ReuseSameProfile {
		return false
	}
	next, nodes, ok := d.next(a)
	if !ok {
		return false
	}
	for _, name := range nodes {
		n := d.nodes[name]
		n.KeptFor, n.KeptUntil = next.Reference, d.in.Now.Add(d.in.Config.KeepLimit)
		d.note(n, kb.EventKept, fmt.Sprintf("for job %s, which wants the same kernel", next.Reference))
	}
	a.HandedTo = next.Reference
	return true
}

// ReservationName of the nodes kept for a job.
func ReservationName(reference string) string { return kb.ReservationPrefix + reference }

// reserved reports whether a kept node has its reservation, and the job it is for is tied to that.
func (d *decision) reserved(n *kb.Node) bool {
	for _, r := range d.in.Slurm.Reservations {
		if r.Job == n.KeptFor && slices.Contains(r.Nodes, n.Name) {
			return d.tied(r)
		}
	}
	return false
}

// tied reports whether the job of a reservation asks for it, as long as the job waits.
func (d *decision) tied(r kb.SlurmReservation) bool {
	for _, j := range d.in.Slurm.Queue {
		if j.Reference == r.Job {
			return slices.Contains(strings.Split(j.Reservation, ","), r.Name)
		}
	}
	return true
}

// waits reports whether a job is still in the queue, and whose it is.
func (d *decision) waits(reference string) (user string, ok bool) {
	for _, j := range d.in.Slurm.Queue {
		if j.Reference == reference {
			return j.User, true
		}
	}
	return "", false
}

// exposed reports whether a plain job could get the node as it is, on another
// kernel than stock: it is not armed, and only its reservation keeps it.
func (d *decision) exposed(name string) bool {
	n := d.in.Nodes[name]
	if own := d.nodes[name]; own != nil {
		n = own
	}
	s, known := d.slurmNode(name)
	return n != nil && known && !s.Armed() && !n.Runs(stockRef)
}

// reservations makes and deletes the reservations of kept nodes, and disarms
// their return once nobody else can take them.
func (d *decision) reservations() {
	kept := map[string][]string{}
	for _, name := range d.order {
		if n := d.nodes[name]; n.KeptFor != "" {
			kept[n.KeptFor] = append(kept[n.KeptFor], name)
		}
	}
	for _, r := range d.in.Slurm.Reservations {
		if _, needed := kept[r.Job]; !needed && !slices.ContainsFunc(r.Nodes, d.exposed) {
			d.act(Action{Kind: DropReservation, Text: r.Name})
		}
	}
	for _, reference := range slices.Sorted(maps.Keys(kept)) {
		nodes := kept[reference]
		if !d.reserved(d.nodes[nodes[0]]) {
			if user, ok := d.waits(reference); ok {
				d.act(Action{Kind: ReserveNodes, Nodes: nodes, Reference: reference, User: user, Text: ReservationName(reference)})
			}
			continue
		}
		for _, name := range nodes {
			if s, ok := d.slurmNode(name); ok && s.Armed() && !s.RebootIssued() {
				d.act(Action{Kind: Disarm, Nodes: []string{name}})
			}
		}
	}
}
