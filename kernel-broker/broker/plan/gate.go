// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Slurm drains a node at once when the gate has refused a job. The clocks of
// node and slurmctld may differ a little, and slurmd tries again while it does
// not reach slurmctld.
const (
	gateEarly = 5 * time.Second
	gateLate  = time.Minute
)

// A gate that refuses again and again is its node's fault. Jobs that are
// refused together count once.
const (
	gateWindow = 10 * time.Minute
	gateBurst  = 10 * time.Second
	gateTimes  = 3
)

// gate undoes the drain that the gate's refusal of a job brought about, when
// the node is what a job may find: proven stock that nobody has. Which drain
// that is, is on record, since the node forgets its refusals when it boots.
func (d *decision) gate(n *kb.Node, agent Agent) {
	s, known := d.slurmNode(n.Name)
	if !known || n.Slurm.Service.Author != kb.AuthorGate {
		return
	}
	stock := n.Steady() && n.Running.Ref.IsStock() && d.owner(n) == nil
	if !stock || !agent.Connected || s.Unknown() || !s.Free() || n.Slurm.Awaited.Awaits() || s.Armed() && n.Slurm.Awaited.Phase != kb.BootForgotten {
		return
	}
	d.act(Action{Kind: UndoGate, Node: n.Name, By: s.By, Text: "drained since the gate refused a job"})
}

// explains finds the refusal that a drain follows.
func explains(agent Agent, drained time.Time) *kb.GateRefusal {
	if drained.IsZero() || bursts(agent.Refusals, drained) > gateTimes {
		return nil
	}
	for _, r := range agent.Refusals {
		if after := drained.Sub(r.At); after >= -gateEarly && after <= gateLate {
			return &r
		}
	}
	return nil
}

// bursts counts how often, up to the drain, the gate refused of late.
func bursts(refusals []kb.GateRefusal, drained time.Time) int {
	count, last := 0, time.Time{}
	for _, r := range refusals {
		if drained.Sub(r.At) > gateWindow {
			continue
		}
		if count == 0 || r.At.Sub(last) > gateBurst {
			count++
		}
		last = r.At
	}
	return count
}
