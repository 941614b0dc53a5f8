// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// allocation moves one job's allocation on.
func (d *decision) allocation(a *kb.Allocation) {
	if a.Closed {
		return
	}
	switch a.Phase {
	case kb.PhaseAccepted:
		a.Enter(kb.PhaseSwitching, d.in.Now, fmt.Sprintf("to %s on %d nodes", a.Kernel.Ref(), len(a.Nodes)))
	case kb.PhaseSwitching:
		d.switching(a)
	case kb.PhaseReady:
		d.ready(a)
	}
	// Not part of the switch above: what follows holds for the new phase.
	// The comment comes first: it tells the user why, before the job is held.
	d.comment(a)
	switch a.Phase {
	case kb.PhaseFailed:
		d.failed(a)
	case kb.PhaseReturning:
		d.returning(a)
	case kb.PhaseDone:
		a.Closed = !d.endForgotten(a) && d.in.Slurm.At.Sub(a.Ended) > forgetTime
	}
}

func (d *decision) switching(a *kb.Allocation) {
	if d.noRegistration(a) {
		return
	}
	if d.gone(a) {
		if d.leavesNow(a) {
			return
		}
		d.end(a, "the job left before its kernel was ready")
		d.watchPossibleHold(a)
		return
	}
	if _, err := d.in.Catalog.Resolve(a.Kernel.Ref()); err != nil {
		d.refuse(a, err.Error(), true)
		return
	}
	if d.suspended(a) {
		return
	}
	if d.unlaunched(a) {
		a.RetryNow = true
		d.refuse(a, "suspended before it had begun, and Slurm would never start it; it waits again", false)
		return
	}
	for _, name := range a.Nodes {
		if n := d.nodes[name]; n != nil && n.Failure != nil && d.owners[name] == a {
			hold := n.Failure.Kind == kb.FailureKernel && a.Fallback == kb.FallbackHold
			d.refuse(a, fmt.Sprintf("kernel %s on node %s: %s", n.Failure.Ref, name, n.Failure.Cause), hold)
			return
		}
	}
	if reason, hold, missed := d.missed(a); missed {
		a.Missed++
		a.RetryNow = !hold
		d.refuse(a, reason, hold)
		return
	}
	if d.age(begun(a)) > d.in.Config.SwitchLimit && !d.off(a) {
		d.refuse(a, fmt.Sprintf("not ready within %v: %s", d.in.Config.SwitchLimit, d.late(a)), false)
		return
	}
	if d.ReadyNodes(a) < len(a.Nodes) {
		return
	}
	for _, name := range a.Nodes {
		a.Proven(&a.During, name, d.nodes[name].Running)
	}
	a.Missed = 0
	a.Enter(kb.PhaseReady, d.in.Now, fmt.Sprintf("every node proved %s", a.Kernel.Release))
}

// leavesNow reports whether Slurm took the job off its nodes while it was asked: nodes come first, and one that runs the
// kernel still shows as allocated, to no job. Only the next view tells whether its slurmd registered too little.
func (d *decision) leavesNow(a *kb.Allocation) bool {
	return d.startedAgain(a) && slices.ContainsFunc(a.Nodes, func(name string) bool {
		n := d.nodes[name]
		s, known := d.slurmNode(name)
		return known && s.Allocated() && !d.inJob(name) && n != nil && n.Owner == a.ID && n.Steady() && n.Runs(a.Kernel.Ref())
	})
}

// maxMissed is how often a job may be started again because Slurm did not wait
// for the boot: by chance that happens once, without RebootProgram always.
const maxMissed = 4

// missed reports whether Slurm does not wait for the boot of a node that has
// yet to come up: to Slurm the boot would be a crash, or will be one. Either the
// job never asked for one, or a slurmd on the old kernel was taken for the
// answer, or the nodes that were kept for the job have lost their kernel. The job
// gets another try, with another wait.
func (d *decision) missed(a *kb.Allocation) (reason string, hold, missed bool) {
	job, ok := d.slurmJob(a)
	if !ok || !d.in.Slurm.At.After(a.Created) {
		return "", false, false
	}
	for _, name := range a.Nodes {
		n := d.nodes[name]
		s, known := d.slurmNode(name)
		if !known || s.Unknown() || n == nil || n.Owner != a.ID || n.Slurm.Awaited.Awaits() || n.Pending == nil && n.Slurm.Awaited.Phase != kb.BootForgotten {
			continue
		}
		if !job.Reboot && !a.Submitted {
			return fmt.Sprintf("node %s: Slurm was not asked to boot it, job_submit.lua has not seen the job", name), true, true
		}
		if a.Missed >= maxMissed {
			return fmt.Sprintf("node %s: Slurm never waits for its boot, is RebootProgram set in slurm.conf?", name), true, true
		}
		if !job.Reboot {
			return fmt.Sprintf("node %s: lost the kernel that it was kept for", name), false, true
		}
		return fmt.Sprintf("node %s: Slurm took an earlier start of slurmd for its boot", name), false, true
	}
	return "", false, false
}

// ReadyNodes counts the nodes on which the job may start.
func (d *decision) ReadyNodes(a *kb.Allocation) int {
	ready := 0
	for _, name := range a.Nodes {
		if d.nodeReady(a, name) {
			ready++
		}
	}
	return ready
}

func (d *decision) nodeReady(a *kb.Allocation, name string) bool {
	n := d.nodes[name]
	if n == nil || n.Owner != a.ID || !n.Steady() || n.Desired != a.Kernel.Ref() || n.Slurm.Awaited.Awaits() {
		return false
	}
	if d.in.Agents[name].Acknowledged < n.Generation {
		return false // the gate does not know the job yet, and would refuse it
	}
	s, ok := d.slurmNode(name)
	return ok && fencedFromNewJobs(s) && !s.Unknown() && d.in.Slurm.At.After(a.Created)
}

// mostLate is how many nodes a reason names: users read it in squeue.
const mostLate = 8

// late names the nodes that a switch still waits for.
func (d *decision) late(a *kb.Allocation) string {
	text, late := "", 0
	for _, name := range a.Nodes {
		if d.nodeReady(a, name) {
			continue
		}
		if late++; late > mostLate {
			continue
		}
		state := "unknown to the broker"
		if n := d.nodes[name]; n != nil {
			state = n.Progress().String()
			if d.in.Agents[name].Connected && n.Steady() && n.Runs(a.Kernel.Ref()) && d.in.Agents[name].Acknowledged < n.Generation {
				state = "its gate does not know the job: see the agent's log"
			}
		}
		text += fmt.Sprintf(" %s (%s)", name, state)
	}
	if more := late - mostLate; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "waited for" + text
}

func (d *decision) refuse(a *kb.Allocation, reason string, hold bool) {
	a.Reason, a.Hold = reason, hold
	a.Enter(kb.PhaseFailed, d.in.Now, reason)
}

func (d *decision) ready(a *kb.Allocation) {
	job, ok := d.slurmJob(a)
	if ok && job.Running() && !a.Seen {
		a.Seen = true
		a.Note(d.in.Now, "", "running", "")
	}
	if ok && job.State == "CONFIGURING" && a.Seen && a.NoRequeue {
		d.refuse(a, "slurmctld forgot that the job had begun and starts it once more, against --no-requeue; scontrol release lets it", true)
		return
	}
	d.losses(a)
	if ok && job.Holds() && a.NoRequeue && job.Requeue {
		d.act(Action{Kind: RestoreNoRequeue, Job: a.ID, Reference: a.Reference})
	}
	if d.gone(a) {
		d.end(a, "the job has ended")
	}
}

// end begins the return of the nodes.
func (d *decision) end(a *kb.Allocation, detail string) {
	a.Ended = d.in.Now
	a.Enter(kb.PhaseReturning, d.in.Now, detail)
}

// holdDelay leaves the hook time to end the prolog itself, which requeues the
// job, before the broker does it.
const holdDelay = 3 * time.Second

// failed keeps a job from starting until Slurm has it off the nodes.
func (d *decision) failed(a *kb.Allocation) {
	if !d.gone(a) {
		job, ok := d.slurmJob(a)
		switch {
		case !ok, a.Requeued: // it leaves
		case a.Hold:
			d.act(Action{Kind: HoldJob, Job: a.ID, Reference: job.Reference, Text: a.Reason})
		case d.age(a.Since) > holdDelay:
			d.act(Action{Kind: RequeueJob, Job: a.ID, Reference: job.Reference, Text: a.Reason})
		}
		return
	}
	if a.Ended.IsZero() {
		a.Ended = d.in.Now
		a.Note(d.in.Now, "", "off the nodes", "")
	}
	a.Requeued = a.Requeued || d.queuedAgain(a)
	if a.RetryNow && !d.settleRequeued(a) {
		return
	}
	waits := !d.endWaits(a)
	a.Closed = d.returned(a) && !waits
}

// reasonTime is longer than slurmctld takes to say why a requeued job waits, and than the pause that it would have the job
// make. With many jobs before it slurmctld may not look at the job for hours.
const reasonTime = 3 * time.Minute

// settleRequeued lets a requeued job start at once, where Slurm would have it wait for
// two minutes, or holds one that Slurm has requeued by itself. It reports whether nothing is left to do about that. A job
// that is still leaving its nodes comes back to the queue after that.
func (d *decision) settleRequeued(a *kb.Allocation) bool {
	if !d.in.Slurm.At.After(a.Ended) {
		return false
	}
	if j, leaving := d.in.Slurm.Jobs[a.ID.Job]; leaving && !j.Holds() {
		return false
	}
	for _, j := range d.in.Slurm.Queued(a.ID.Job) {
		switch {
		case j.ID != a.ID.Job || j.Restart <= a.ID.Restart:
		case a.Hold && j.Priority != 0:
			d.act(Action{Kind: HoldForUser, Job: a.ID, Reference: j.Reference, Text: a.Reason})
			return false
		case a.Hold:
		case j.Reason == "BeginTime":
			d.act(Action{Kind: StartJob, Job: a.ID, Reference: j.Reference})
			return false
		case (j.Reason == "None" || j.Reason == "Cleaning") && d.age(a.Ended) < reasonTime:
			return false // the reason is still to come
		}
	}
	a.RetryNow = false
	return true
}

func (d *decision) returning(a *kb.Allocation) {
	if !d.endForgotten(a) && d.returned(a) {
		a.Enter(kb.PhaseDone, d.in.Now, "")
	}
}

// returned reports whether no node is left to the allocation, and records what
// each of them came back to.
func (d *decision) returned(a *kb.Allocation) bool {
	for _, name := range a.Had() {
		n := d.nodes[name]
		if n == nil || n.Timeline != a.ID {
			continue
		}
		if n.KeptFor != "" {
			return false
		}
		back := n.Steady() && n.Desired.IsStock() && !n.Slurm.Awaited.Awaits()
		if !back && n.Failure == nil {
			return false
		}
		if a.Proven(&a.After, name, n.Running) && back {
			a.Note(d.in.Now, name, "stock", n.Running.Release)
		}
	}
	return true
}
