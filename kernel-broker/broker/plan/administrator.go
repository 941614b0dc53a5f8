// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/observe"
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
		d.held[n.Name] = d.held[n.Name] || d.in.Slurm.At.IsZero() && agent.Connected && armedBoot(n, agent)
		return
	}
	held := d.held[n.Name]
	if s.Unknown() {
		d.unregistered(n, s, agent)
	} else {
		d.rebootAsked(n, s)
		d.trackOutOfService(n, s, agent)
		d.restoreState(n, s, agent)
		d.settleBoot(n, s, agent)
		d.held[n.Name] = d.held[n.Name] || (silentBoot(n, agent) || armedBoot(n, agent)) && d.viewPredatesBoot(n, s, agent) ||
			silentBoot(n, agent) && d.unissued(n, s, agent)
	}
	if !agent.Connected {
		d.held[n.Name] = held // nobody is there to be told
	}
	if !d.held[n.Name] && (n.Slurm.Restore == nil || !n.Slurm.Restore.Asked) {
		n.Slurm.Told = time.Time{} // of no boot that comes later
	}
}

// unregistered is for a slurmctld that has restarted, and knows of the node what was
// said of it, but nothing else before slurmd answers: to hold that back for longer
// than it takes to say something again would be for ever.
func (d *decision) unregistered(n *kb.Node, s kb.SlurmNode, agent Agent) {
	if s.Foreign() || n.Slurm.Restore != nil {
		d.trackOutOfService(n, s, agent)
	}
	d.held[n.Name] = n.Slurm.Restore == nil && silentBoot(n, agent) && d.viewPredatesBoot(n, s, agent)
	d.restoreState(n, s, agent)
}

// silentBoot reports whether a boot of ours is over that Slurm does not know of yet.
func silentBoot(n *kb.Node, agent Agent) bool {
	return n.Boot.Token != "" && n.Slurm.Registered != n.Boot.BootID && !agent.Slurmd.Running
}

// armedBoot reports whether Slurm, which was asked for a boot, is to hear of a node's slurmd: it takes any boot for that one,
// also a reset.
func armedBoot(n *kb.Node, agent Agent) bool { return n.Slurm.Armed() && !agent.Slurmd.Running }

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
		!s.NotResponding() && d.age(agent.Since) < observe.AskedFor
}

// armLater asks Slurm for a boot, and notes that before it is: an administrator who
// drains the node a moment later replaces the broker's reason.
func (d *decision) armLater(n *kb.Node) {
	if !n.Slurm.Armed() || d.in.Now.Sub(n.Slurm.Requested.Since) > observe.AskedFor/2 {
		n.Slurm.Requested = kb.SlurmBoot{Phase: kb.BootAsked, Owner: kb.OwnerBroker, Since: d.in.Now}
	}
	d.arms = append(d.arms, n.Name)
}

// AdministratorReboots reports whether Slurm boots a node, now or later, because
// an administrator requests it. n is nil for a node without a record.
func AdministratorReboots(n *kb.Node, s kb.SlurmNode) bool {
	return s.RebootAsked() && (n == nil || !n.Slurm.Armed()) && !s.BootsForJob()
}

// trackOutOfService records what is said of a node for as long as a return may wipe it,
// and forgets it when an administrator has.
func (d *decision) trackOutOfService(n *kb.Node, s kb.SlurmNode, agent Agent) {
	if n.Slurm.Service.Nobodys() {
		// Of a node that was just booting its agent tells of the gate later than Slurm.
		if n.Slurm.Restore != nil && n.Slurm.Restore.By == s.By {
			d.clearOutOfService(n)
		}
		return
	}
	switch said := n.Slurm.Restore; {
	case s.Foreign() && (n.Slurm.Service.Author == kb.AuthorWithdrawn || AdministratorReboots(n, s)):
	case s.Foreign() && said == nil:
		if !n.Slurm.Armed() && n.Runs(stockRef) && n.Pending == nil && d.owner(n) == nil {
			return // nothing of ours comes after it
		}
		if !s.ResumeAfter.IsZero() && !d.in.Now.Before(s.ResumeAfter) {
			return // Slurm is about to end it
		}
		n.Slurm.Restore = &kb.OutOfService{Reason: s.PlainReason(), By: s.By, Down: n.Slurm.Service.State == kb.ServiceDown, Fail: s.Failing(), Until: s.ResumeAfter, BootID: n.Boot.BootID}
		d.note(n, "taken out of service", n.Slurm.Restore.Reason)
	case s.Foreign():
		if s.PlainReason() != said.Reason {
			said.Reason, said.By, said.Asked, said.Fail, said.Until = s.PlainReason(), s.By, false, false, s.ResumeAfter
		}
		if !s.ResumeAfter.IsZero() {
			said.Until = s.ResumeAfter
		}
		said.Down, said.Fail = said.Down || n.Slurm.Service.State == kb.ServiceDown, said.Fail || s.Failing()
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

func (d *decision) clearOutOfService(n *kb.Node) {
	n.Slurm.Restore = nil
	d.held[n.Name] = false
}

// restoredSince reports whether the state was set again, and Slurm polled after that.
func (d *decision) restoredSince(n *kb.Node) bool {
	return !n.Slurm.Told.IsZero() && d.in.Slurm.At.After(n.Slurm.Told)
}

// restoredUnseen reports whether the state was set again, and Slurm not polled since: it may have been taken back by now,
// and would be set against that if it were set once more.
func (d *decision) restoredUnseen(n *kb.Node) bool {
	return !n.Slurm.Told.IsZero() && !d.in.Slurm.At.After(n.Slurm.Told)
}

// restoreState sets again in Slurm what the next registration would end, while no
// slurmd answers.
func (d *decision) restoreState(n *kb.Node, s kb.SlurmNode, agent Agent) {
	said := n.Slurm.Restore
	if said == nil {
		return
	}
	d.held[n.Name] = false
	if !s.Free() || d.owner(n) != nil || !n.Steady() || !n.Runs(stockRef) || d.resumesByItself(n) {
		return
	}
	switch {
	case said.Asked && d.restoredSince(n) && !s.RebootAsked():
		if !s.Waiting() {
			n.Slurm.Registered = n.Boot.BootID
		}
		said.BootID, said.Asked = n.Boot.BootID, false
	case agent.Slurmd.Running && !s.RebootAsked() && !said.Asked:
		said.BootID = n.Boot.BootID // Slurm has the boot, and still says so
	case s.RebootAsked() || said.Asked || said.BootID != n.Boot.BootID:
		d.held[n.Name] = true
		// It may have been taken back while the node booted: what is said again is what the poll after the boot showed.
		if agent.Connected && !agent.Slurmd.Running && (said.Asked || d.in.Slurm.At.After(agent.Since)) && !d.restoredUnseen(n) {
			said.Asked = true
			d.act(Action{Kind: RestoreState, Node: n.Name, Text: said.Reason, State: said.State(), Until: said.Until})
		}
		return
	}
	d.confirmRestored(n, s, agent)
}

// resumesByItself forgets what Slurm would have ended by itself in the meantime, and reports whether it did.
func (d *decision) resumesByItself(n *kb.Node) bool {
	if n.Slurm.Restore.Until.IsZero() || d.in.Now.Before(n.Slurm.Restore.Until) {
		return false
	}
	d.note(n, "returned to service", "the time that resumeafter gave is over")
	d.clearOutOfService(n)
	n.Slurm.Service.Author = kb.AuthorWithdrawn // slurmctld may show it until the boot is over, without an end
	return true
}

// confirmRestored forgets what Slurm has again. ReturnToService=2 has a registration end
// what was set down, so Slurm is polled once more after slurmd has answered.
func (d *decision) confirmRestored(n *kb.Node, s kb.SlurmNode, agent Agent) {
	switch {
	case !n.Slurm.Restore.Down:
		d.clearOutOfService(n)
	case !agent.Slurmd.Running || !d.in.Slurm.At.After(agent.Slurmd.At):
	case !s.Down():
		d.act(Action{Kind: DownNode, Node: n.Name, Text: n.Slurm.Restore.Reason, Until: n.Slurm.Restore.Until})
	case d.in.Slurm.At.Sub(agent.Slurmd.At) >= d.in.Config.RegisterRetry:
		d.clearOutOfService(n)
	}
}

// settleBoot keeps a kexec that Slurm waits for no more from looking like a crash:
// slurmctld that is reconfigured forgets boots that jobs wait for. With no job on
// the node there is none that it could have cost.
func (d *decision) settleBoot(n *kb.Node, s kb.SlurmNode, agent Agent) {
	if n.Slurm.Restore != nil {
		return
	}
	d.held[n.Name] = false
	if !silentBoot(n, agent) || !agent.Connected || !n.Steady() || d.owner(n) != nil || n.KeptFor != "" {
		return
	}
	half := s.Drained() && s.Reason == settling
	if !s.Free() || s.Waiting() || s.RebootAsked() || s.Down() || s.Drained() && !half {
		return
	}
	if d.restoredSince(n) && !half {
		n.Slurm.Registered = n.Boot.BootID
		return
	}
	d.held[n.Name] = true
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
	if known && n.Slurm.Armed() && s.Armed() && !s.RebootIssued() && (s.Unnamed() || s.Reason == "" || n.Slurm.Service.Author == kb.AuthorWithdrawn) && owner.Phase == kb.PhaseReady {
		d.labels[armReason(owner)] = append(d.labels[armReason(owner)], n.Name)
	}
}

// labelAll labels the nodes of each job by one command.
func (d *decision) labelAll() {
	for _, text := range slices.Sorted(maps.Keys(d.labels)) {
		d.act(Action{Kind: LabelNodes, Nodes: d.labels[text], Text: text})
	}
}

func armReason(owner *kb.Allocation) string {
	return fmt.Sprintf("%s %s%s%s", kb.ReasonReturn, owner.Kernel.Ref(), kb.ReasonForJob, owner.Reference)
}

// priorReason is what an administrator had said of a node that fails.
func priorReason(n *kb.Node) string {
	if n.Slurm.Restore == nil {
		return ""
	}
	return fmt.Sprintf(" (before: %s)", n.Slurm.Restore.Reason)
}
