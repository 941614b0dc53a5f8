// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// noRegistration ends a switch in which slurmd does not register on the job's kernel, or registers less than slurm.conf says
// of the node: without the driver of a GPU, for one. Slurm requeues such a job, and another try would end as this one.
func (d *decision) noRegistration(a *kb.Allocation) bool {
	for _, name := range a.Nodes {
		n := d.nodes[name]
		if n == nil || n.Owner != a.ID || n.Failure != nil || !n.Steady() || !n.Runs(a.Kernel.Ref()) {
			continue
		}
		cause := d.missingRegistration(a, n)
		if cause == "" {
			continue
		}
		d.fault(n, n.Boot.Token, a.Kernel.Ref(), cause)
		kind, cause := d.bootFault(n, a.Kernel.Ref(), cause)
		d.fail(n, kind, a.Kernel.Ref(), cause)
		d.refuse(a, fmt.Sprintf("kernel %s on node %s: %s", a.Kernel.Ref(), name, cause), kind == kb.FailureKernel && a.Fallback == kb.FallbackHold)
		a.RetryNow = a.Hold // Slurm requeues it by itself, perhaps in this moment
		return true
	}
	return false
}

// missingRegistration is what Slurm misses of a node's slurmd; empty if it may still come.
func (d *decision) missingRegistration(a *kb.Allocation, n *kb.Node) string {
	s, known := d.slurmNode(n.Name)
	agent := d.in.Agents[n.Name]
	if !known || !agent.Connected {
		return ""
	}
	// Slurm may have begun the return already.
	if s.Invalid() && (!n.Slurm.Awaited.Awaits() || s.RebootIssued() && d.backInQueue(a)) {
		what := "see slurmctld's log"
		if s.Misfit() {
			what = s.PlainReason()
		}
		return "slurmd registers with less than slurm.conf says of the node: " + what
	}
	since := d.age(later(agent.Since, d.in.Slurm.Since)) // no slurmd registers with a slurmctld that is away
	// Slurm that gives up boots the node again, which is armed, or does not wait any more (26.05).
	waits := n.Slurm.Awaited.Awaits() || s.State == "DOWN" && (s.Reason == reasonResume || strings.HasSuffix(s.Reason, reasonReboot))
	given := d.backInQueue(a) || !d.gone(a) && d.age(begun(a)) > d.in.Config.SwitchLimit && !d.off(a)
	if !given || !waits || since <= d.in.Config.AgentLimit {
		return ""
	}
	return fmt.Sprintf("slurmd has not registered %v after its boot, see its log on the node", since.Truncate(time.Second))
}

// backInQueue reports whether Slurm has requeued a job by itself, also while the job is still leaving its nodes.
func (d *decision) backInQueue(a *kb.Allocation) bool {
	return d.gone(a) && d.startedAgain(a)
}

// startedAgain reports whether Slurm has counted another start of the job. It does so at once, and shows such a job as
// completing until its nodes are done with it.
func (d *decision) startedAgain(a *kb.Allocation) bool {
	return laterRun(a)(d.in.Slurm.Jobs[a.ID.Job]) || d.queuedAgain(a)
}

// queuedAgain reports whether the job waits for another start.
func (d *decision) queuedAgain(a *kb.Allocation) bool {
	return slices.ContainsFunc(d.in.Slurm.Queued(a.ID.Job), laterRun(a))
}

func laterRun(a *kb.Allocation) func(kb.SlurmJob) bool {
	return func(j kb.SlurmJob) bool { return j.ID == a.ID.Job && j.Restart > a.ID.Restart }
}
