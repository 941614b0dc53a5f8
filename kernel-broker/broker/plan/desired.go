// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func hasDrainReason(s kb.SlurmNode) bool { return strings.HasPrefix(s.Reason, kb.ReasonDrain) }

// wanted says what a node shall run. The first rule that holds counts.
var wanted = []struct {
	holds func(d *decision, n *kb.Node) bool
	want  func(d *decision, n *kb.Node)
	// noBoot: no kexec begins, and slurmd is not restarted.
	noBoot bool
}{
	// Its job waits for its kernel.
	{holds: (*decision).jobWaits, want: func(d *decision, n *kb.Node) {
		d.desire(n, d.owner(n).Kernel.Ref())
		d.arm(n, d.owner(n))
	}},
	// Its job may run, and the node has lost its kernel.
	{holds: (*decision).hasLost, want: (*decision).leaveLost},
	// Its job may run.
	{holds: (*decision).owned, want: func(d *decision, n *kb.Node) {
		if owner := d.owner(n); n.Runs(owner.Kernel.Ref()) && n.KeptFor == "" {
			d.arm(n, owner) // also after somebody cancelled it
			d.label(n, owner)
		}
	}},
	// Somebody else reboots it.
	{holds: (*decision).rebooting, want: (*decision).reboot, noBoot: true},
	// Nobody has it.
	{holds: func(*decision, *kb.Node) bool { return true }, want: func(d *decision, n *kb.Node) {
		d.release(n)
		d.drainForgottenBoot(n)
		d.heal(n)
	}},
}

// desired decides what a node shall run, and begins or drops the boot to it.
func (d *decision) desired(n *kb.Node) {
	d.own(n, d.owner(n))
	for _, rule := range wanted {
		if !rule.holds(d, n) {
			continue
		}
		rule.want(d, n)
		if rule.noBoot {
			return
		}
		break
	}
	agent, owner := d.in.Agents[n.Name], d.owner(n)
	if !d.hasLost(n) {
		d.boot(n, agent, owner)
	}
	d.loadOnly(n, agent, owner)
	d.register(n, agent)
}

func (d *decision) owned(n *kb.Node) bool { return d.owner(n) != nil }

func (d *decision) jobWaits(n *kb.Node) bool { return d.owned(n) && d.owner(n).Switching() }

// hasLost reports whether the node has lost the kernel of the job that has it.
func (d *decision) hasLost(n *kb.Node) bool { return d.owned(n) && d.owner(n).HasLost(n.Name) }

// lateStep is longer than a step's launch is tried: Slurm's credential for it
// expires after two minutes.
const lateStep = 3 * time.Minute

// own hands the node to its owner, or takes it from one that has let it go.
func (d *decision) own(n *kb.Node, owner *kb.Allocation) {
	if owner == nil {
		if !n.Owner.IsZero() {
			n.LeftAt = d.in.Now
		}
		n.Owner = kb.JobID{}
		if d.age(n.LeftAt) > lateStep && n.Pending == nil {
			n.LeftAt = time.Time{}
		}
		return
	}
	if n.Owner == owner.ID {
		return
	}
	n.Owner, n.Timeline = owner.ID, owner.ID
	n.KeptFor, n.KeptUntil, n.LeftAt = "", time.Time{}, time.Time{}
	n.Attempts = 0
	delete(owner.Before, n.Name)
	owner.Proven(&owner.Before, n.Name, n.Running)
}

func (d *decision) desire(n *kb.Node, ref kb.Ref) {
	if n.Desired == ref {
		return
	}
	n.Desired, n.RetryAt = ref, time.Time{}
	n.Attempts = 0
}

// release brings a node without an owner back to stock as soon as no job can
// be hurt by it.
func (d *decision) release(n *kb.Node) {
	s, known := d.slurmNode(n.Name)
	if n.KeptFor != "" {
		why := d.whyKeptJobFails(n)
		if why == "" && d.in.Now.Before(n.KeptUntil) && !s.RebootIssued() {
			return
		}
		switch {
		case s.RebootIssued():
			why = "its return had begun already"
		case why == "":
			why = fmt.Sprintf("job %s did not come", n.KeptFor)
		}
		d.note(n, kb.EventLetGo, why)
		n.KeptFor, n.KeptUntil = "", time.Time{}
	}
	if n.Desired == stockRef || n.Runs(stockRef) || n.Slurm.PoweredOffBoot != "" {
		// No boot lies between, so there is nothing to wait for.
		d.desire(n, stockRef)
		return
	}
	if !known || !d.in.Slurm.At.After(d.ended(n)) {
		return
	}
	switch {
	case s.Armed() && bootDeferred(s) && !s.Unknown():
		reason := s.Reason
		if n.Slurm.Service.Author == kb.AuthorWithdrawn {
			reason = kb.ReasonReturn + " its job has left" // not again what an administrator has taken back
		}
		d.act(Action{Kind: DownNode, Node: n.Name, Text: reason})
	case s.Free() && (n.Slurm.Awaited.Awaits() || s.Down() || s.Drained()):
		d.desire(n, stockRef)
		d.note(n, "returning", "to stock")
	case n.Slurm.Awaited.Awaits() && !d.awaited(n.Name):
		d.desire(n, stockRef)
		d.note(n, "returning", "to stock, for a plain job")
	case s.Free() && !s.Armed() && n.Slurm.Awaited.Phase != kb.BootForgotten && n.Failure == nil:
		d.armLater(n)
	}
}

// bootDeferred reports whether Slurm puts a boot off that it is asked for, until it takes the node
// down: no slurmd answers where a kernel runs that no job has.
func bootDeferred(s kb.SlurmNode) bool {
	return s.Free() && s.NotResponding() && !s.Waiting() && s.State != "DOWN"
}

// ended is when the node's last job was seen to end. Before it was accepted
// the node may have looked free: one that failed at once has not ended yet.
func (d *decision) ended(n *kb.Node) time.Time {
	if a := d.allocs[n.Timeline]; a != nil {
		return later(a.Created, a.Ended)
	}
	return time.Time{}
}

// awaited reports whether a job that asked for a profile has the node and has
// yet to come to the broker.
func (d *decision) awaited(node string) bool {
	return slices.ContainsFunc(d.in.Slurm.On(node), func(j kb.SlurmJob) bool { return j.Holds() && j.Reboot })
}

// fencedFromNewJobs reports whether Slurm lets no other job onto a node when its own has left, by the armed return or by what others
// said of the node.
func fencedFromNewJobs(s kb.SlurmNode) bool {
	return s.Armed() || s.PowerDownAsked() || s.Drained() && !s.Ours()
}

// arm sees to it that the return is armed before the kernel comes.
func (d *decision) arm(n *kb.Node, owner *kb.Allocation) {
	s, known := d.slurmNode(n.Name)
	if !known || !d.in.Slurm.At.After(owner.Created) || n.Failure != nil || n.Slurm.Restore != nil || fencedFromNewJobs(s) || n.Slurm.Awaited.Phase == kb.BootForgotten {
		return
	}
	if s.RebootAsked() {
		// It would not keep the next job away.
		if n.Reboot != nil {
			n.Reboot.Taken = true
		}
		d.act(Action{Kind: Disarm, Nodes: []string{n.Name}})
		return
	}
	d.armLater(n)
}

// armAll arms all nodes by one command.
func (d *decision) armAll() {
	if len(d.arms) > 0 {
		d.act(Action{Kind: ArmReturn, Nodes: d.arms})
	}
}

// boot begins the boot to what is wanted, or drops one that no longer is.
func (d *decision) boot(n *kb.Node, agent Agent, owner *kb.Allocation) {
	if p := n.Pending; p != nil {
		why := d.needless(n, p)
		if p.Progress != kb.ProgressLoading || why == "" {
			return
		}
		n.Pending = nil
		d.note(n, "dropped", fmt.Sprintf("%s %s", p.Kernel.Ref(), why))
	}
	if n.Failure != nil || n.Runs(n.Desired) || !agent.Connected || n.Boot.BootID == "" || n.Slurm.PoweredOffBoot == n.Boot.BootID {
		return
	}
	kernel, ok := d.kernelFor(n, owner)
	if !ok || d.in.Now.Before(n.RetryAt) || d.ruledOut(n, kernel) || d.imageDamaged(n, kernel) {
		return
	}
	if why := d.forbidden(n, kernel); why != "" {
		d.fail(n, kb.FailureKernel, kernel.Ref(), why)
		return
	}
	if err := kernel.CheckCores(n.Inventory); err != nil {
		// Asked here too: an older agent would boot it with all cores in common use.
		d.fail(n, kb.FailureKernel, kernel.Ref(), err.Error())
		return
	}
	if why := d.noReturn(n, kernel); why != "" {
		d.fail(n, kb.FailureKernel, kernel.Ref(), why)
		return
	}
	token := d.in.NewToken()
	n.Issue(token, kernel)
	n.Pending = &kb.Pending{Kernel: kernel, Token: token, PrevBootID: n.Boot.BootID,
		Progress: kb.ProgressLoading, Generation: n.Generation + 1, Since: d.in.Now, Begun: d.in.Now, From: n.Running.Ref,
		LoadOnly: owner != nil && owner.Switching()}
}

const (
	// unseenLimit is for how long a boot waits for Slurm to be seen. A slurmctld that does not answer holds up no switch:
	// the job waits for its answer later.
	unseenLimit = 5 * time.Second
	// sameSecond is the most that lies, for the broker, between a slurmd's registration and an allocation that Slurm, which
	// counts seconds, has at the same time.
	sameSecond = 2 * time.Second
	// lateAnswer is for how long slurmctld takes answers to what it sent to a node before it allocated it.
	lateAnswer = 1500 * time.Millisecond
)

// loadOnly lets a node load the kernel of its job, and not boot it before Slurm was seen since the job got the node. If its
// slurmd registered in the second of the allocation, any answer that slurmd gave before ends Slurm's wait for the boot,
// which would then be a crash to Slurm: such a node waits until all of them have come. What it may do once it may do for
// good, since it may have begun.
func (d *decision) loadOnly(n *kb.Node, agent Agent, owner *kb.Allocation) {
	p := n.Pending
	if p == nil || !p.LoadOnly || p.Progress != kb.ProgressLoading || !agent.Connected {
		return
	}
	p.LoadOnly = false
	if owner != nil && owner.Switching() && d.age(p.Begun) < unseenLimit {
		sure := owner.Created
		if owner.Created.Sub(agent.Slurmd.Since) < sameSecond {
			sure = sure.Add(lateAnswer)
		}
		p.LoadOnly = !d.in.Slurm.At.After(sure)
	}
}

// noReturn is why a node that leaves stock for a kernel could not boot stock again by kexec; empty if nothing says so, or a
// rule has it return without one.
func (d *decision) noReturn(n *kb.Node, kernel kb.Kernel) string {
	stock, ok := d.in.Catalog.Stock()
	if !ok || kernel.Ref().IsStock() || !n.Running.Ref.IsStock() {
		return ""
	}
	if slices.ContainsFunc(d.in.Rules, func(r kb.HardwareRule) bool { return r.Matches(n.Name, n.Hardware, kernel.Ref()) }) {
		return ""
	}
	if err := stock.CheckRoot(n.Inventory); err != nil {
		return fmt.Sprintf("the node could not return: %v", err)
	}
	return ""
}

// needless is why a boot is not wanted; empty if it is.
func (d *decision) needless(n *kb.Node, p *kb.Pending) string {
	same := p.Kernel.Ref() == n.Desired || n.Desired.IsStock() && p.Kernel.Ref().IsStock()
	switch {
	case !same || n.Runs(n.Desired):
		return "is no longer wanted"
	case d.forbidden(n, p.Kernel) != "" || d.returnRule(n, p.Kernel) != nil:
		return "is ruled out"
	}
	return ""
}

func (d *decision) kernelFor(n *kb.Node, owner *kb.Allocation) (kb.Kernel, bool) {
	if n.Desired.IsStock() {
		return d.in.Catalog.Stock()
	}
	if owner == nil {
		return kb.Kernel{}, false
	}
	return owner.Kernel, true
}

// register restarts slurmd when Slurm still waits for a boot that the
// node has behind it, or, since it failed, never does.
func (d *decision) register(n *kb.Node, agent Agent) {
	if !n.Slurm.Awaited.Awaits() || n.Pending != nil || !n.Runs(n.Desired) || !agent.Connected || !agent.Slurmd.Running {
		return
	}
	if agent.Slurmd.Start != n.SlurmdStart || d.jobNotYetHere(n) {
		return
	}
	// A return ends on stock: a slurmd that claimed its boot before would have Slurm wait no more, and the boot that follows
	// would be a crash to it.
	if !n.Running.Ref.IsStock() && n.Slurm.Awaited.Owner != kb.OwnerJob {
		return
	}
	// Slurm must be seen to wait still at the end of that time: once it has
	// the registration, another one would be a node that rebooted.
	seen, begun, from := d.in.Slurm.At, agent.Slurmd.At, d.slurmdNotBefore(n)
	if begun.Before(from) && !seen.Before(from) || seen.Sub(later(begun, d.in.Began)) > d.in.Config.RegisterRetry {
		n.SlurmdStart++
	}
}

// jobNotYetHere reports whether the job that the node waits for has not named its
// kernel yet. To register before that kernel runs would end Slurm's wait,
// and the boot that follows would be a crash to it. A job whose hook was
// killed never comes: the gate refuses it once the node has registered.
func (d *decision) jobNotYetHere(n *kb.Node) bool {
	for id := range d.in.Queued {
		if d.jobHas(id, n.Name) {
			return true
		}
	}
	waited := d.in.Slurm.At.Sub(d.slurmdNotBefore(n))
	return n.Owner.IsZero() && d.awaited(n.Name) && waited < d.in.Config.AgentLimit
}

// slurmdNotBefore is the earliest time at which slurmctld heeds a registration for the boot that it waits for: it counts in
// whole seconds, and may have asked for that boot when it gave the node to its job.
func (d *decision) slurmdNotBefore(n *kb.Node) (from time.Time) {
	if n.Slurm.Awaited.Awaits() {
		from = n.Slurm.Awaited.Since
	}
	if owner := d.owner(n); owner != nil {
		from = later(from, owner.Created)
	}
	if from.IsZero() {
		return from
	}
	return from.Truncate(time.Second).Add(d.in.Config.RegisterDelay)
}
