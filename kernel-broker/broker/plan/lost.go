// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// reasonLost begins the reason of a node that is down since it lost its kernel.
const reasonLost = kb.ReasonReturn + " lost "

// losses notes the nodes that lost the kernel under their job, by a crash or a
// reset. It comes before the job's comment, which names them.
func (d *decision) losses(a *kb.Allocation) {
	for _, name := range a.Nodes {
		n := d.nodes[name]
		if n == nil || d.owners[name] != a || a.HasLost(name) {
			continue
		}
		if n.Runs(a.Kernel.Ref()) || n.Boot.BootID == a.During[name].BootID {
			continue
		}
		if a.Lost == nil {
			a.Lost = map[string]string{}
		}
		if a.LostAt == nil { // also of a record of an older version
			a.LostAt = map[string]time.Time{}
		}
		a.Lost[name], a.LostAt[name] = "it rebooted", d.in.Now
		d.note(n, "lost", fmt.Sprintf("%s: %s", a.Kernel.Ref(), a.Lost[name]))
	}
}

// lostText names the nodes that lost the job's kernel.
func lostText(a *kb.Allocation) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(a.Lost)) {
		list = append(list, fmt.Sprintf("node %s lost %s: %s", name, a.Kernel.Ref(), a.Lost[name]))
	}
	if more := len(list) - mostLate; more > 0 {
		list = append(list[:mostLate], fmt.Sprintf("and %d more nodes", more))
	}
	return strings.Join(list, "; ")
}

// leaveLost looks after a node that lost the kernel of a job which may run. It is not
// switched again under the job and takes no step of it: what is wanted stays the
// job's kernel, so slurmd stays away. To Slurm, which with ReturnToService=2
// would let such a node go on, it is down, as after any crash. The return is
// armed: once the job is off it, the node comes back by itself.
func (d *decision) leaveLost(n *kb.Node) {
	owner := d.owner(n)
	d.desire(n, owner.Kernel.Ref())
	if !d.in.Slurm.At.After(owner.LostAt[n.Name]) {
		// Slurm may have taken the node from the job meanwhile, and an
		// administrator may have put it back into service.
		return
	}
	job, ok := d.slurmJob(owner)
	s, known := d.slurmNode(n.Name)
	if !ok || !known || !job.Holds() || !slices.Contains(job.Nodes, n.Name) || s.State == "DOWN" {
		return
	}
	// The reference keeps it behind the job's comment: what is down ends the job.
	d.act(Action{Kind: DownNode, Node: n.Name, Job: owner.ID, Reference: job.Reference,
		Text: fmt.Sprintf("%s%s under job %s: %s%s", reasonLost, owner.Kernel.Ref(), owner.Reference, owner.Lost[n.Name], priorReason(n))})
}

// left reports whether a job goes on without a node that lost its kernel.
func (d *decision) left(a *kb.Allocation, name string) bool {
	if !a.HasLost(name) || !d.in.Slurm.At.After(a.Since) {
		return false
	}
	job, ok := d.slurmJob(a)
	return ok && job.Unread == "" && !slices.Contains(job.Nodes, name)
}
