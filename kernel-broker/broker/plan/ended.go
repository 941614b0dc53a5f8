// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// forgetTime is longer than slurmctld takes to save that a job has ended.
const forgetTime = 30 * time.Second

// endForgotten reports whether slurmctld holds a job for running that has ended: it
// was killed before it had saved the end. By itself it finds such a job when the
// node registers without the job's script, unless the node has booted soon after
// the job's start, as it has on its return. Then the job would have its nodes
// until its time is up. It ends as Slurm ends a job whose script is missing: back
// to the queue, or for good where it may not be requeued.
func (d *decision) endForgotten(a *kb.Allocation) bool {
	job, ok := d.slurmJob(a)
	if !ok || !job.Running() || !d.in.Slurm.At.After(a.Ended) {
		return false
	}
	for _, name := range a.Nodes {
		if n := d.nodes[name]; n == nil || n.Runs(a.Kernel.Ref()) || !n.Steady() {
			return false
		}
	}
	kind := CancelJob
	if job.Requeue {
		kind = RequeueJob
	}
	d.act(Action{Kind: kind, Job: a.ID, Reference: job.Reference, Text: "slurmctld forgot its end, and its nodes have booted since"})
	return true
}
