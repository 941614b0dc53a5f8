// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// shrink has an allocation follow its job's list of nodes: one that a user gave
// back, or that Slurm took from a job which goes on without it, returns while
// the job runs on. No node ever comes into an allocation, neither one that was
// let go nor one that the job grew by: it was not made ready for it.
func (d *decision) shrink(a *kb.Allocation) {
	job, ok := d.slurmJob(a)
	if !ok || !a.Holds() || !hasFullNodeList(job) || !d.in.Slurm.At.After(a.Created) {
		return
	}
	has := make(map[string]bool, len(job.Nodes))
	for _, name := range job.Nodes {
		has[name] = true
	}
	kept := make([]string, 0, len(a.Nodes))
	for _, name := range a.Nodes {
		if has[name] {
			kept = append(kept, name)
			continue
		}
		a.Left = append(a.Left, name)
		a.Note(d.in.Now, name, kb.EventLetGo, "the job goes on without it")
	}
	a.Nodes = kept
}

// hasFullNodeList reports whether a job is on just the nodes that slurmctld lists.
func hasFullNodeList(job kb.SlurmJob) bool {
	return job.Holds() && job.Unread == "" && len(job.Nodes) > 0
}

// shrinkRun has a profiling run end on the nodes that its job has let go.
func (d *decision) shrinkRun(r *kb.Run, job kb.SlurmJob) {
	if !hasFullNodeList(job) || !d.in.Slurm.At.After(r.Claimed) {
		return
	}
	for i := range r.Nodes {
		if n := &r.Nodes[i]; !slices.Contains(job.Nodes, n.Name) {
			n.Left = true
		}
	}
}
