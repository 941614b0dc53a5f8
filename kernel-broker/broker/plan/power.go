// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// power follows what Slurm's power saving does to a node. One that is off is
// silent with good reason, and shows another boot when it is on again: its
// firmware's, which is stock. How long that may take is Slurm's to say: it takes
// the node down after ResumeTimeout.
func (d *decision) power(n *kb.Node, agent Agent) {
	s, known := d.slurmNode(n.Name)
	switch {
	case known && s.PoweredDown() && s.State != "DOWN":
		if n.Slurm.PoweredOffBoot == "" && managed(n) {
			n.Slurm.PoweredOffBoot = n.Boot.BootID
		}
		if d.owner(n) == nil && n.Pending != nil && !agent.Connected {
			d.note(n, "dropped", "the node is powered down")
			n.Pending = nil
		}
	case n.Slurm.PoweredOffBoot == "":
	case agent.Connected && (n.Boot.BootID != n.Slurm.PoweredOffBoot || d.neverOff(n, s)), known && !s.Waiting() && !s.Down():
		n.Slurm.PoweredOffBoot = ""
		if owner := d.owner(n); owner != nil && owner.Switching() {
			owner.Begun = d.in.Now
			d.note(n, "powered up", "")
		}
	}
}

// neverOff reports whether a node that Slurm powers up kept its power: the stream
// of one that lost it ends within that time.
func (d *decision) neverOff(n *kb.Node, s kb.SlurmNode) bool {
	return n.Slurm.Awaited.Awaits() && s.Waiting() && d.age(n.Slurm.Awaited.Since) > d.in.Config.AgentLimit
}

// off reports whether an allocation waits for a node to be powered up.
func (d *decision) off(a *kb.Allocation) bool {
	for _, name := range a.Nodes {
		if n := d.nodes[name]; n != nil && n.Slurm.PoweredOffBoot != "" {
			return true
		}
	}
	return false
}

// begun is when the time of a switch began to count: not before its turn, and
// not before its nodes had power.
func begun(a *kb.Allocation) time.Time { return later(a.Created, a.Begun) }
