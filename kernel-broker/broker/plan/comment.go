// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// comment keeps the job's AdminComment true while the job can be seen. What was
// asked for at submit stays in it: a requeued job is asked again.
func (d *decision) comment(a *kb.Allocation) {
	reference, text := d.commentOf(a)
	if text == "" {
		return
	}
	text = kb.Comment{Text: text, Collectors: a.Collectors, NoRequeue: a.NoRequeue && !d.noRequeueRestored(a)}.String()
	if a.Comment != text {
		d.act(Action{Kind: CommentJob, Job: a.ID, Reference: reference, Text: text})
	}
}

// commentOf is what is true of the job, as scontrol names it; no text where
// nothing is to be said.
func (d *decision) commentOf(a *kb.Allocation) (reference, text string) {
	job, ok := d.slurmJob(a)
	if !ok {
		return d.requeued(a)
	}
	switch a.Phase {
	case kb.PhaseAccepted, kb.PhaseSwitching:
		text = fmt.Sprintf("nodes boot %s, %d of %d ready", a.Kernel.Ref(), d.ReadyNodes(a), len(a.Nodes))
	case kb.PhaseReady:
		text = fmt.Sprintf("runs on %s, kernel %s", a.Kernel.Ref(), a.Kernel.Release)
		if len(a.Lost) > 0 {
			text += "; " + lostText(a)
		}
	case kb.PhaseFailed:
		return job.Reference, a.Reason
	}
	if !job.Holds() {
		return "", ""
	}
	return job.Reference, text
}

// requeued is the comment of a job that is back in the queue. The reason of one
// that is held stays as it is.
func (d *decision) requeued(a *kb.Allocation) (reference, text string) {
	if a.Switching() || a.Hold && !a.RetryNow {
		return "", ""
	}
	for _, j := range d.in.Slurm.Queued(a.ID.Job) {
		// After a later run it is that run's to say.
		if j.ID == a.ID.Job && j.Restart == a.ID.Restart+1 && j.State == "PENDING" {
			if a.Hold {
				return j.Reference, a.Reason
			}
			return j.Reference, kb.Waits(a.Requested, d.why(a))
		}
	}
	return "", ""
}

// why a job came back into the queue, as far as it can be told.
func (d *decision) why(a *kb.Allocation) string {
	if a.Reason != "" {
		return a.Reason
	}
	if len(a.Lost) > 0 {
		return lostText(a)
	}
	return "Slurm took it off its nodes"
}

// noRequeueRestored reports whether a job whose user said --no-requeue has that back. The
// command is no proof: a slurmctld that dies after it may have forgotten it.
func (d *decision) noRequeueRestored(a *kb.Allocation) bool {
	job, ok := d.slurmJob(a)
	return ok && a.Phase == kb.PhaseReady && !job.Requeue
}
