// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/observe"
)

// node takes in what the agent and slurmctld say of one node. Reports come first: the last ones of a boot may be here
// together with the next boot, whose agent reports on nothing before it has a desired state.
func (d *decision) node(n *kb.Node, agent Agent) {
	d.held[n.Name] = n.Told.Slurmd == kb.SlurmdHeld
	d.reports(n, agent)
	d.attest(n, agent)
	d.power(n, agent)
	d.overdue(n, agent)
	was := n.Slurm
	d.observe(n, agent)
	d.gate(n, agent)
	d.administrator(n, agent)
	d.faults(n)
	d.recover(n, was)
}

// eventFetching of a timeline: the agent has the desired state and loads.
const eventFetching = "fetching"

// reports takes in the agent's reports on the requested boot.
func (d *decision) reports(n *kb.Node, agent Agent) {
	for _, r := range agent.Reports {
		p := n.Pending
		if p == nil || r.Generation < p.Generation {
			continue
		}
		switch r.Progress {
		case kb.ProgressLoading:
			d.noteOnce(n, eventFetching, r.Detail)
		case kb.ProgressLoaded:
			if p.Progress != kb.ProgressLoading {
				continue // the agent announces the same boot again, to a newer desired state
			}
			if p.Loaded.IsZero() {
				p.Loaded = d.in.Now
			}
			d.noteOnce(n, r.Progress.String(), r.Detail)
		case kb.ProgressBooting:
			if p.Progress == kb.ProgressLoading {
				p.Progress, p.Since = kb.ProgressBooting, d.in.Now
				p.Executed = d.in.Now
				d.note(n, "kexec", r.Detail)
			}
		case kb.ProgressFailed:
			if p.Kernel.Ref().IsStock() {
				d.returnFailed(n, p, r.Detail)
				continue
			}
			d.fail(n, r.Kind, p.Kernel.Ref(), r.Detail)
		}
	}
}

// noteOnce writes an event unless it is the node's last one already.
func (d *decision) noteOnce(n *kb.Node, event, detail string) {
	a := d.allocs[n.Timeline]
	if a == nil {
		return
	}
	for i := len(a.Timeline) - 1; i >= 0; i-- {
		if e := a.Timeline[i]; e.Node == n.Name {
			if e.Event == event || event == eventFetching && e.Event == kb.ProgressLoaded.String() {
				return
			}
			break
		}
	}
	d.note(n, event, detail)
}

// overdue looks after nodes that have been silent for too long.
func (d *decision) overdue(n *kb.Node, agent Agent) {
	p, owner := n.Pending, d.owner(n)
	if p == nil {
		if owner != nil && owner.Switching() && n.Failure == nil && !agent.Connected && n.Slurm.PoweredOffBoot == "" &&
			d.age(later(begun(owner), agent.Since)) > d.in.Config.AgentLimit {
			d.fail(n, kb.FailureNode, owner.Kernel.Ref(), "its agent is silent")
		}
		return
	}
	// A broker that was away has no right to call the nodes late: the time
	// counts from its start, which is when it lost every agent.
	since := p.Since
	if !agent.Connected || p.Progress == kb.ProgressLoading {
		since = later(p.Since, agent.Since)
	}
	age := d.age(since)
	ref := p.Kernel.Ref()
	switch p.Progress {
	case kb.ProgressLoading:
		if age > d.in.Config.LoadLimit {
			cause := fmt.Sprintf("not loaded within %v", d.in.Config.LoadLimit)
			switch {
			case ref.IsStock() && !agent.Connected:
				d.lastResort(n, p.Kernel, p.Way, cause+", and its agent is silent")
			case ref.IsStock():
				d.returnFailed(n, p, cause)
			default:
				d.fail(n, kb.FailureNode, ref, cause)
			}
		}
	case kb.ProgressBooting:
		if endsFirst(p) {
			d.ends(n, p, agent)
		} else if limit, late := d.patience(n, p); age > limit {
			d.tried(n, p, late)
			if !d.in.Config.CanReset {
				d.giveUp(n, p, late)
				return
			}
			p.Progress, p.Since = kb.ProgressReset, d.in.Now
			if ref.IsStock() {
				p.Way = kb.WayReset
			}
			d.note(n, "reset", late)
			d.reset(n, agent)
		}
	case kb.ProgressReset:
		d.reset(n, agent)
	}
}

// reset asks for a node's reset until it is done, and gives the node up that
// does not come back. A broker that starts cannot know whether the one before
// it had the reset done: it waits for as long as such a node may take to come
// back, so that a second reset never hits one that is about to.
func (d *decision) reset(n *kb.Node, agent Agent) {
	p := n.Pending
	grace := max(d.in.Config.ResetGrace, d.in.Config.RebootTimeout) // both go through the firmware
	begin, cause := p.ResetAt, "no sign of life after a reset"
	switch restarted := agent.Since.After(p.Since); {
	case !begin.IsZero() && !agent.Connected:
		begin = later(begin, agent.Since)
	case !begin.IsZero():
	case restarted:
		begin, cause = agent.Since.Add(grace), "no sign of life, and it cannot be reset"
	default:
		begin, cause = p.Since, "no sign of life, and it cannot be reset"
	}
	if d.age(begin) > grace {
		d.try(n, p, kb.WayReset, false, cause, kb.UnknownTimes())
		d.giveUp(n, p, cause)
		return
	}
	if p.ResetAt.IsZero() && !d.in.Now.Before(begin) {
		why := "silent after its boot"
		if p.Executed.IsZero() && !p.Begun.IsZero() {
			why = "it returns without a kexec"
		}
		d.act(Action{Kind: ResetNode, Node: n.Name, Token: p.Token, Text: why})
	}
}

// giveUp gives a node up that neither boots nor can be reached. The kernel is
// blamed too: it is the last thing that is known of the node.
func (d *decision) giveUp(n *kb.Node, p *kb.Pending, cause string) {
	if ref := p.Kernel.Ref(); !ref.IsStock() {
		d.fault(n, p.Token, ref, cause)
	}
	d.fail(n, kb.FailureNode, p.Kernel.Ref(), cause)
}

// bootTimeout is the profile's own for its kernel, also when the allocation has
// let the node go since the kexec.
func (d *decision) bootTimeout(n *kb.Node, ref kb.Ref) time.Duration {
	if a := d.allocs[n.Timeline]; a != nil && a.BootTimeout > 0 && a.Kernel.Ref() == ref {
		return a.BootTimeout
	}
	return d.in.Config.StockTimeout
}

// observe takes in what slurmctld shows of the node. One that was restarted has forgotten, and waits for any registration.
func (d *decision) observe(n *kb.Node, agent Agent) {
	s, ok := d.slurmNode(n.Name)
	if !ok {
		return
	}
	was := n.Slurm
	var refusal *kb.GateRefusal
	n.Slurm = observe.Node(was, s, observe.Facts{
		At: d.in.Slurm.At, Now: d.in.Now,
		JobBack: d.jobHas(n.Timeline, n.Name), LastJobBack: d.jobHas(n.LastJob(), n.Name),
		Returned:  n.Reboot == nil && !n.LeftAt.IsZero() && n.Runs(stockRef),
		ThrownOff: d.thrownOff(n),
		OnProfile: n.Running.Ref.Profile != "" && !n.Running.Ref.IsStock(),
		Refused: func(drained time.Time) bool {
			refusal = explains(agent, drained)
			return refusal != nil
		},
	})
	if refusal != nil {
		d.note(n, kb.EventGateDrain, fmt.Sprintf("job %d: %s", refusal.Job, refusal.Cause))
	}
	switch waits := n.Slurm.Awaited.Awaits(); {
	case waits == was.Awaited.Awaits():
	case !waits && !s.Unknown():
		if n.Steady() {
			n.Slurm.Registered = n.Boot.BootID
		}
		d.noteOnce(n, "registered", "slurmd "+s.State)
	}
}

// thrownOff reports whether somebody took the node from its job, to have that requeued or for good.
func (d *decision) thrownOff(n *kb.Node) bool {
	a := d.allocs[n.Timeline]
	if a == nil || a.Suspended || a.Phase == kb.PhaseFailed {
		return false // it is the broker that has the job requeued
	}
	return d.in.Slurm.NodeFailed[a.ID.Job] || d.startedAgain(a)
}

// faults asks for failed boots to be counted until they are.
func (d *decision) faults(n *kb.Node) {
	var left []kb.Fault
	for _, f := range n.Faults {
		if d.in.Catalog.Counted(f) {
			continue
		}
		left = append(left, f)
		d.act(Action{Kind: CountFault, Node: n.Name, Fault: f, Text: f.Cause})
	}
	n.Faults = left
}

// recover ends a failure: the kernel's when the job is off the node, the
// node's when an administrator has resumed it.
func (d *decision) recover(n *kb.Node, was kb.SlurmSide) {
	if n.Failure == nil {
		return
	}
	s, known := d.slurmNode(n.Name)
	if n.Failure.Kind == kb.FailureKernel {
		if d.owner(n) == nil {
			n.Failure, n.Attempts = nil, 0
		}
		return
	}
	if !known {
		return
	}
	// Once Slurm waits for no boot any more, it forgets the drain. A slurmctld that
	// has restarted and not heard from the node has not.
	out := s.Drained() || s.Down() && !s.Unknown()
	switch {
	case out && hasDrainReason(s):
		n.Failure.Drained = true
	case n.Failure.Drained && out && (s.Drained() || s.Foreign()):
		// An administrator has taken the node out of service for another reason. If Slurm has, the drain has ended.
	case n.Failure.Drained && bootsOtherwise(was) && !s.NotResponding():
		// The registration after an armed boot ended the drain. A resume would have
		// left the node not responding for a moment.
		n.Failure.Drained = false
	case n.Failure.Drained:
		n.Failure, n.Attempts = nil, 0
		if !n.Runs(stockRef) {
			// The boot to stock that was asked for is one that Slurm waits
			// for no more: it has to be armed again.
			n.Desired = kb.Ref{}
		}
	case s.Armed() && !s.RebootIssued():
		d.act(Action{Kind: Disarm, Nodes: []string{n.Name}})
	default:
		d.act(Action{Kind: DrainNode, Node: n.Name,
			Text: fmt.Sprintf("%s %s: %s%s", kb.ReasonDrain, n.Failure.Ref, n.Failure.Cause, priorReason(n))})
	}
}

// bootsOtherwise reports whether Slurm boots the node for another reason than a job: the registration after that ends every
// drain.
func bootsOtherwise(s kb.SlurmSide) bool {
	other := func(b kb.SlurmBoot) bool {
		return (b.Phase == kb.BootRequested || b.Phase == kb.BootIssued || b.Phase == kb.BootForgotten) && b.Owner != kb.OwnerJob
	}
	return other(s.Requested) || other(s.Awaited)
}
