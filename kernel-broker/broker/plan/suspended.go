// SPDX-License-Identifier: Apache-2.0

package plan

import (
	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// suspended reports whether a job is suspended before it has its kernel.
// Slurm then forgets that it is being configured: it never launches what it has
// not launched, and runs the job's time down after a resume. Requeued while it is
// suspended the job would be held, so that waits for the resume.
func (d *decision) suspended(a *kb.Allocation) bool {
	job, ok := d.slurmJob(a)
	if !ok || job.State != "SUSPENDED" && job.State != "STOPPED" {
		return false
	}
	if !a.Suspended {
		a.Suspended = true
		a.Note(d.in.Now, "", "suspended", "before it had begun")
	}
	return true
}

// unlaunched reports whether a job was resumed that Slurm will never launch.
// Nothing of it has begun, so to requeue it runs nothing twice.
func (d *decision) unlaunched(a *kb.Allocation) bool {
	job, ok := d.slurmJob(a)
	if !ok || !d.in.Slurm.At.After(a.Created) || !job.Running() {
		return false
	}
	if a.Suspended {
		return true
	}
	for _, name := range a.Nodes {
		if s, known := d.slurmNode(name); known && s.Waiting() {
			return true
		}
	}
	return false
}
