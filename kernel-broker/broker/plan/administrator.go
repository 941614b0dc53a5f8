// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var stockRef = kb.Ref{Profile: kb.StockProfile}

// administrator takes in what somebody else than the product says of a node, and
// sees to it that Slurm still says so when the node is back on stock. The boot
// that ends a return is one that Slurm was asked for with nextstate=RESUME, and
// the registration after it ends every drain and every reason. So before slurmd
// may answer that boot is taken back, and the node taken out of service again.
func (d *decision) administrator(n *kb.Node, agent Agent) {
	s, known := d.slurmNode(n.Name)
	if !known {
		// A broker that has just started has not polled Slurm yet, and what was said without it ends with a registration.
		n.SlurmdHeld = n.SlurmdHeld || d.in.Slurm.At.IsZero() && agent.Connected && armedBoot(n, agent)
		return
	}
	held := n.SlurmdHeld
	d.misfit(n, s)
	d.takenBack(n, s)
	if s.Unknown() {
		d.unregistered(n, s, agent)
	} else {
		d.ourBoot(n, s)
		d.rebootAsked(n, s)
		d.listen(n, s, agent)
		d.restoreState(n, s, agent)
		d.settleBoot(n, s, agent)
		n.SlurmdHeld = n.SlurmdHeld || (silentBoot(n, agent) || armedBoot(n, agent)) && d.viewPredatesBoot(n, s, agent) ||
			silentBoot(n, agent) && d.unissued(n, s, agent)
	}
	if !agent.Connected {
		n.SlurmdHeld = held // nobody is there to be told
	}
}

// unregistered is for a slurmctld that has restarted, and knows of the node what was
// said of it, but nothing else before slurmd answers: to hold that back for longer
// than it takes to say something again would be for ever.
func (d *decision) unregistered(n *kb.Node, s kb.SlurmNode, agent Agent) {
	if s.RebootAsked() {
		d.ourBoot(n, s)
	}
	if s.Foreign() || n.OutOfService != nil {
		d.listen(n, s, agent)
	}
	n.SlurmdHeld = n.OutOfService == nil && silentBoot(n, agent) && d.viewPredatesBoot(n, s, agent)
	d.restoreState(n, s, agent)
}

// silentBoot reports whether a boot of ours is over that Slurm does not know of yet.
func silentBoot(n *kb.Node, agent Agent) bool {
	return n.Boot.Token != "" && n.KnownBoot != n.Boot.BootID && !agent.Slurmd.Running
}

// armedBoot reports whether Slurm, which was asked for a boot, is to hear of a node's slurmd: it takes any boot for that one,
// also a reset.
func armedBoot(n *kb.Node, agent Agent) bool { return n.Armed && !agent.Slurmd.Running }

// viewPredatesBoot reports whether the last poll of Slurm is older than the node's boot.
// A drain in between would not be known, and the registration
// would end that drain: slurmd waits for one more poll. The registration after a
// job's boot ends no drain, and the job waits for it.
func (d *decision) viewPredatesBoot(n *kb.Node, s kb.SlurmNode, agent Agent) bool {
	return !d.in.Slurm.At.After(agent.Since) && (d.owner(n) == nil || s.RebootIssued())
}

// unissued reports whether the node was faster than slurmctld, which has not
// issued the armed boot that the node has behind it: a registration
// before that would be a crash to it.
func (d *decision) unissued(n *kb.Node, s kb.SlurmNode, agent Agent) bool {
	return d.owner(n) == nil && n.Runs(stockRef) && s.Free() && s.Armed() && !s.RebootIssued() &&
		!s.NotResponding() && d.age(agent.Since) < armTime
}

// armTime is what a boot that was asked for may take to be seen.
const armTime = 10 * time.Second

// ourBoot keeps track of whose the boot is that Slurm is asked for. Ours is until
// it is seen to be over; the next one may be an administrator's.
func (d *decision) ourBoot(n *kb.Node, s kb.SlurmNode) {
	switch {
	case !s.RebootAsked():
		n.Armed = n.Armed && d.in.Slurm.At.Sub(n.ArmedAt) < armTime
	case strings.HasPrefix(s.Reason, kb.ReasonReturn), d.bootIsOver(n, s):
		n.Armed, n.ArmedAt = true, time.Time{}
	case n.ArmedIssued && !s.RebootIssued():
		n.Armed, n.ArmedIssued = d.wentBack(n), false // ours had begun: this one was asked for after it
	case n.ArmedIssued && anotherIssued(n, s):
		n.Armed, n.ArmedIssued = false, false
	case d.in.Slurm.At.After(n.ArmedAt):
		n.ArmedAt = time.Time{}
	}
	n.ArmedIssued = n.Armed && (n.ArmedIssued || s.RebootIssued() && !s.BootsForJob())
	n.AnsweredEarly = n.ArmedIssued && (n.AnsweredEarly || s.State == "IDLE" && s.BootForgotten())
}

// bootIsOver reports whether Slurm waits for the boot of a return that has ended: a slurmctld that was killed may remember a
// state from before it, with the job that left, and whatever is said then is said of a node that boots no more. A reason
// that came after Slurm issued the boot is none of a reboot's.
func (d *decision) bootIsOver(n *kb.Node, s kb.SlurmNode) bool {
	return !n.Armed && n.Reboot == nil && !n.Left.IsZero() && n.Runs(stockRef) && !s.BootsForJob() &&
		(d.jobHas(n.Left, n.Name) || s.RebootIssued() && s.Foreign() && s.Reason == s.PlainReason())
}

// wentBack reports whether a slurmctld that was killed has forgotten the boot that it had issued: the job that the node was
// armed for has it again.
func (d *decision) wentBack(n *kb.Node) bool {
	return d.jobHas(n.Timeline, n.Name)
}

// anotherIssued reports whether the boot that Slurm has issued is an administrator's, ours having been issued and ended while
// Slurm was not polled: Slurm adds to the reason that the boot is issued, and this reason was not there when ours was.
func anotherIssued(n *kb.Node, s kb.SlurmNode) bool {
	return s.RebootIssued() && s.Reason != s.PlainReason() && s.Foreign() && !nobodysDrain(n, s) && n.TakenBack == nil &&
		(n.OutOfService == nil || n.OutOfService.Reason != s.PlainReason())
}

// armLater asks Slurm for a boot, and notes that before it is: an administrator who
// drains the node a moment later replaces the broker's reason.
func (d *decision) armLater(n *kb.Node) {
	if !n.Armed || d.in.Now.Sub(n.ArmedAt) > armTime/2 {
		n.Armed, n.ArmedAt, n.ArmedIssued = true, d.in.Now, false
	}
	d.arms = append(d.arms, n.Name)
}

// AdministratorReboots reports whether Slurm boots a node, now or later, because
// an administrator requests it. n is nil for a node without a record.
func AdministratorReboots(n *kb.Node, s kb.SlurmNode) bool {
	return s.RebootAsked() && (n == nil || !n.Armed) && !s.BootsForJob()
}

// takenBack keeps what an administrator took back apart from what is said: a resume
// leaves the reason, and a boot that is then asked for shows it again as that of a
// drain. Once Slurm has issued the boot it counts the reason from then.
func (d *decision) takenBack(n *kb.Node, s kb.SlurmNode) {
	switch said := n.TakenBack; {
	case s.Reason == "" || s.Ours():
		n.TakenBack = nil
	case !s.Drained() && !s.Down() && !s.RebootAsked():
		n.TakenBack = &kb.OutOfService{Reason: s.PlainReason(), By: s.By}
	case said == nil || said.Reason != s.PlainReason() || said.By != s.By && !s.RebootIssued():
		n.TakenBack = nil
	default:
		said.By = s.By
	}
}

// nobodysDrain reports whether nobody said what Slurm says of the node: the gate brought it about, or the kernel.
func nobodysDrain(n *kb.Node, s kb.SlurmNode) bool {
	return s.By != "" && (n.GateDrain == s.By || n.KernelDrain == s.By)
}

// listen records what is said of a node for as long as a return may wipe it,
// and forgets it when an administrator has.
func (d *decision) listen(n *kb.Node, s kb.SlurmNode, agent Agent) {
	if nobodysDrain(n, s) {
		// Of a node that was just booting its agent tells of the gate later than Slurm.
		if n.OutOfService != nil && n.OutOfService.By == s.By {
			d.clearOutOfService(n)
		}
		return
	}
	switch said := n.OutOfService; {
	case s.Foreign() && (n.TakenBack != nil || AdministratorReboots(n, s)):
	case s.Foreign() && said == nil:
		if !n.Armed && n.Runs(stockRef) && n.Pending == nil && d.owner(n) == nil {
			return // nothing of ours comes after it
		}
		if !s.ResumeAfter.IsZero() && !d.in.Now.Before(s.ResumeAfter) {
			return // Slurm is about to end it
		}
		n.OutOfService = &kb.OutOfService{Reason: s.PlainReason(), By: s.By, Down: d.wasDowned(n, s), Fail: s.Failing(), Until: s.ResumeAfter, BootID: n.Boot.BootID}
		d.note(n, "taken out of service", n.OutOfService.Reason)
	case s.Foreign():
		if s.PlainReason() != said.Reason {
			said.Reason, said.By, said.Asked, said.Fail, said.Until = s.PlainReason(), s.By, false, false, s.ResumeAfter
		}
		if !s.ResumeAfter.IsZero() {
			said.Until = s.ResumeAfter
		}
		said.Down, said.Fail = said.Down || d.wasDowned(n, s), said.Fail || s.Failing()
	case said == nil || said.Asked && !d.restoredSince(n):
	case strings.HasPrefix(s.Reason, reasonLost):
		// The broker set the node down since it lost its kernel. That replaced what the administrator said, and did not end it.
	case said.BootID != n.Boot.BootID && agent.Slurmd.Running && s.Reason == "" && n.Runs(stockRef):
		// slurmd answered before it was held back, and Slurm forgot. After a job's boot Slurm does not.
		if !d.resumesByItself(n) {
			d.act(Action{Kind: DrainNode, Node: n.Name, Text: said.Reason, Until: said.Until})
		}
	default:
		d.note(n, "returned to service", "")
		d.clearOutOfService(n)
	}
}

// wasDowned tells a node that was set down from one that was drained. Slurm
// itself sets one down to boot it, be it ever so shortly after: what tells then
// is that slurmd had ended that already, or that its job was thrown off it, to be
// requeued or for good.
func (d *decision) wasDowned(n *kb.Node, s kb.SlurmNode) bool {
	switch {
	case !s.Down() || s.Unknown():
		return false
	case !s.RebootIssued() || n.AnsweredEarly:
		return true
	}
	a := d.allocs[n.Timeline]
	if a == nil || a.Suspended || a.Phase == kb.PhaseFailed {
		return false // it is the broker that has the job requeued
	}
	if d.in.Slurm.NodeFailed[a.ID.Job] {
		return true
	}
	requeued := func(j kb.SlurmJob) bool { return j.ID == a.ID.Job && j.Restart > a.ID.Restart }
	// Slurm counts the restart at once, and shows such a job as completing until its nodes are done with it.
	return requeued(d.in.Slurm.Jobs[a.ID.Job]) || slices.ContainsFunc(d.in.Slurm.Queue, requeued)
}

func (d *decision) clearOutOfService(n *kb.Node) {
	n.OutOfService = nil
	n.SlurmdHeld = false
}

// restoredSince reports whether the state was set again, and Slurm polled after that.
func (d *decision) restoredSince(n *kb.Node) bool {
	at, restored := d.in.Restored[n.Name]
	return restored && d.in.Slurm.At.After(at)
}

// restoredUnseen reports whether the state was set again, and Slurm not polled since: it may have been taken back by now,
// and would be set against that if it were set once more.
func (d *decision) restoredUnseen(n *kb.Node) bool {
	at, restored := d.in.Restored[n.Name]
	return restored && !d.in.Slurm.At.After(at)
}

// restoreState sets again in Slurm what the next registration would end, while no
// slurmd answers.
func (d *decision) restoreState(n *kb.Node, s kb.SlurmNode, agent Agent) {
	said := n.OutOfService
	if said == nil {
		return
	}
	n.SlurmdHeld = false
	if !s.Free() || d.owner(n) != nil || !n.Steady() || !n.Runs(stockRef) || d.resumesByItself(n) {
		return
	}
	switch {
	case said.Asked && d.restoredSince(n) && !s.RebootAsked():
		if !s.Waiting() {
			n.KnownBoot = n.Boot.BootID
		}
		said.BootID, said.Asked = n.Boot.BootID, false
	case agent.Slurmd.Running && !s.RebootAsked() && !said.Asked:
		said.BootID = n.Boot.BootID // Slurm has the boot, and still says so
	case s.RebootAsked() || said.Asked || said.BootID != n.Boot.BootID:
		n.SlurmdHeld = true
		// It may have been taken back while the node booted: what is said again is what the poll after the boot showed.
		if agent.Connected && !agent.Slurmd.Running && (said.Asked || d.in.Slurm.At.After(agent.Since)) && !d.restoredUnseen(n) {
			said.Asked = true
			d.act(Action{Kind: RestoreState, Node: n.Name, Text: said.Reason, State: said.State(), Until: said.Until})
		}
		return
	}
	d.settled(n, s, agent)
}

// resumesByItself forgets what Slurm would have ended by itself in the meantime, and reports whether it did.
func (d *decision) resumesByItself(n *kb.Node) bool {
	if n.OutOfService.Until.IsZero() || d.in.Now.Before(n.OutOfService.Until) {
		return false
	}
	d.note(n, "returned to service", "the time that resumeafter gave is over")
	d.clearOutOfService(n)
	return true
}

// settled forgets what Slurm has again. ReturnToService=2 has a registration end
// what was set down, so Slurm is polled once more after slurmd has answered.
func (d *decision) settled(n *kb.Node, s kb.SlurmNode, agent Agent) {
	switch {
	case !n.OutOfService.Down:
		d.clearOutOfService(n)
	case !agent.Slurmd.Running || !d.in.Slurm.At.After(agent.Slurmd.At):
	case !s.Down():
		d.act(Action{Kind: DownNode, Node: n.Name, Text: n.OutOfService.Reason, Until: n.OutOfService.Until})
	case d.in.Slurm.At.Sub(agent.Slurmd.At) >= d.in.Config.RegisterRetry:
		d.clearOutOfService(n)
	}
}

// settleBoot keeps a kexec that Slurm waits for no more from looking like a crash:
// slurmctld that is reconfigured forgets boots that jobs wait for. With no job on
// the node there is none that it could have cost.
func (d *decision) settleBoot(n *kb.Node, s kb.SlurmNode, agent Agent) {
	if n.OutOfService != nil {
		return
	}
	n.SlurmdHeld = false
	if !silentBoot(n, agent) || !agent.Connected || !n.Steady() || d.owner(n) != nil || n.KeptFor != "" {
		return
	}
	half := s.Drained() && s.Reason == settling
	if !s.Free() || s.Waiting() || s.RebootAsked() || s.Down() || s.Drained() && !half {
		return
	}
	if d.restoredSince(n) && !half {
		n.KnownBoot = n.Boot.BootID
		return
	}
	n.SlurmdHeld = true
	if d.in.Slurm.At.After(agent.Since) && !d.restoredUnseen(n) {
		d.act(Action{Kind: SettleBoot, Node: n.Name, Text: settling})
	}
}

// settling is the reason of the drain that ends at once.
const settling = kb.ReasonReturn + " a boot that Slurm does not wait for"

// label tells who reads reasons what a node is armed for. The boot is asked for
// without a reason: Slurm would put it in the place of what an administrator said
// a moment before, which nobody could know any more.
func (d *decision) label(n *kb.Node, owner *kb.Allocation) {
	s, known := d.slurmNode(n.Name)
	if known && n.Armed && s.Armed() && !s.RebootIssued() && (s.Unnamed() || s.Reason == "" || n.TakenBack != nil) && owner.Phase == kb.PhaseReady {
		d.act(Action{Kind: LabelNode, Node: n.Name, Text: armReason(owner)})
	}
}

func armReason(owner *kb.Allocation) string {
	return fmt.Sprintf("%s %s%s%s", kb.ReasonReturn, owner.Kernel.Ref(), kb.ReasonForJob, owner.Reference)
}

// priorReason is what an administrator had said of a node that fails.
func priorReason(n *kb.Node) string {
	if n.OutOfService == nil {
		return ""
	}
	return fmt.Sprintf(" (before: %s)", n.OutOfService.Reason)
}
