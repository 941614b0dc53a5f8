// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// managed reports whether an agent has ever come from a node.
func managed(n *kb.Node) bool { return n.Boot.BootID != "" }

// longestWait is longer than slurmctld waits for any boot.
const longestWait = 2 * time.Hour

// endWaits has Slurm no longer wait for the boots of nodes that no agent can boot: it would take them down in the end. Those
// waits began with the job, which was refused; a boot that an administrator requested stays. It reports whether all are over.
func (d *decision) endWaits(a *kb.Allocation) bool {
	over := true
	_, leaving := d.slurmJob(a)
	for _, name := range a.Nodes {
		// While its state is changed scontrol does not show the node.
		s, known := d.slurmNode(name)
		switch n := d.nodes[name]; {
		case n != nil && managed(n), known && (!s.Waiting() || s.RebootIssued() && !s.BootsForJob()), d.age(a.Ended) > longestWait:
			continue
		case leaving:
		case known && s.Foreign():
			// Ending the wait would end the drain, too. ResumeTimeout ends the wait, and the drain stays.
		case !known || s.Free():
			d.act(Action{Kind: EndWait, Node: name})
		}
		over = false
	}
	return over
}
