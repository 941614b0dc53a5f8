// SPDX-License-Identifier: Apache-2.0

package plan

import (
	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// tell makes a node's desired state of its record. It has a new generation if it is another one.
func (d *decision) tell(n *kb.Node) {
	if now := d.told(n); now != n.Told {
		n.Told = now
		n.Generation++
	}
}

func (d *decision) told(n *kb.Node) kb.Told {
	t := kb.Told{
		Job: n.Owner.Job, Running: n.Running.Ref, Attested: n.Running.Ref.Profile != "" && n.Running.BootID == n.Boot.BootID,
		SlurmdStart: n.SlurmdStart, SlurmdNotBefore: d.slurmdNotBefore(n),
		NoBootAwaited: !n.Slurm.Awaited.Awaits(), BootKnown: n.Slurm.Registered != "" && n.Slurm.Registered == n.Boot.BootID,
		Reboot: n.Reboot != nil && n.Reboot.Due && n.Reboot.BootID == n.Boot.BootID,
	}
	// The desired state stays while the node boots: an agent that is still there goes
	// through with it, one on the new kernel finds its token.
	switch p := n.Pending; {
	case p != nil && p.Way == "":
		t.Token, t.LoadOnly = p.Token, p.LoadOnly
	case p != nil && p.Progress == kb.ProgressBooting && p.PrevBootID == n.Boot.BootID:
		t.Reboot = true
	}
	stock := n.Running.Ref.IsStock()
	// A failed node that runs stock may serve: Slurm knows it as drained.
	switch {
	case d.held[n.Name]:
		t.Slurmd = kb.SlurmdHeld
	case t.Attested && (n.Steady() || n.Failure != nil && stock):
		t.Slurmd = kb.SlurmdAllowed
	}
	switch {
	case d.hasLost(n):
		t.Lost = d.owner(n).ID.Job
	case stock:
		// The steps of a job that left may be launched until their credentials expire, by a node that was reset, too.
		t.Lost = n.LastJob().Job
	}
	return t
}
