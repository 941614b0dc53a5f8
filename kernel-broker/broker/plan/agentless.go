// SPDX-License-Identifier: Apache-2.0

package plan

import (
	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// managed reports whether an agent has ever come from a node. Of others there is
// a record only because a job was refused for them.
func managed(n *kb.Node) bool { return n.Boot.BootID != "" }

// endWait has Slurm no longer wait for the boot of a node that no agent can boot:
// it would take the node down in the end. That wait began with a job that was
// refused; a boot that an administrator requested stays.
func (d *decision) endWait(n *kb.Node) {
	if n.Refused.IsZero() || !d.in.Slurm.At.After(n.RefusedAt) {
		return
	}
	if j, ok := d.in.Slurm.Jobs[n.Refused.Job]; ok && j.Restart == n.Refused.Restart {
		return // to be held, or leaving
	}
	// While its state is changed scontrol does not show the node.
	s, known := d.slurmNode(n.Name)
	switch {
	case managed(n), known && (!s.Waiting() || s.RebootIssued() && !s.BootsForJob()):
		n.Refused = kb.JobID{}
	case known && s.Foreign():
		// Ending the wait would end the drain, too. ResumeTimeout ends the wait, and the drain stays.
	case !known || s.Free():
		d.act(Action{Kind: EndWait, Node: n.Name})
	}
}
