// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// What slurmctld says of a node whose boot it has not seen in time, or which has
// booted when it did not wait for that.
const (
	reasonReboot     = "reboot timed out"
	reasonComplete   = "reboot complete"
	reasonResume     = "ResumeTimeout reached"
	reasonUnexpected = "Node unexpectedly rebooted"
)

// healDelay gives a slurmd that has just begun to run time to register: after the
// resume that would be one more boot that nobody expects.
const healDelay = 5 * time.Second

// issueTime is how long slurmctld may take to issue a boot to an idle node. It may
// never do so where it miscounts the jobs that are suspended there.
const issueTime = 15 * time.Second

// heal resumes a node that is back on stock, whose slurmd runs, and which Slurm
// keeps out of service over a boot of the broker's own: one that it takes for a
// crash, has forgotten, or never issues, which is taken back first, or since it
// did not fit the kernel that it ran. Any other reason is somebody else's. One that lost its kernel and is powered down meanwhile
// has none that could run anything: Slurm switches it on for the next job.
func (d *decision) heal(n *kb.Node) {
	agent := d.in.Agents[n.Name]
	s, known := d.slurmNode(n.Name)
	if known && s.State == "DOWN" && s.PowerIsOff() && !s.Drained() && strings.HasPrefix(s.Reason, reasonLost) && n.Slurm.Restore == nil && n.Failure == nil {
		d.act(Action{Kind: ResumeNode, Node: n.Name, Text: s.Reason})
		return
	}
	if !known || n.Slurm.Restore != nil || n.Failure != nil || !n.Desired.IsStock() || !n.Runs(stockRef) || !n.Steady() {
		return
	}
	// Before slurmd has registered the boot a resume would make it a crash.
	if !agent.Connected || !agent.Slurmd.Running || d.in.Slurm.At.Sub(agent.Slurmd.At) <= healDelay {
		return
	}
	if n.Slurm.Armed() && s.Free() && s.RebootAsked() && !s.RebootIssued() && !n.Slurm.Awaited.Awaits() && d.in.Slurm.At.Sub(agent.Slurmd.At) > issueTime {
		d.act(Action{Kind: Disarm, Nodes: []string{n.Name}})
		return
	}
	if keptByMistake(s) || n.Slurm.Service.Author == kb.AuthorKernel && s.Drained() && s.Free() && !s.Invalid() || s.State == "DOWN" && !n.Slurm.Awaited.Awaits() && !s.Armed() && ownBoot(n, s) {
		d.act(Action{Kind: ResumeNode, Node: n.Name, Text: s.Reason})
	}
}

// keptByMistake reports whether Slurm keeps a drain of the product's own whose
// boot is over: slurmctld that was reconfigured no longer knows that the node is
// to be resumed, and one that took an answer of slurmd for the end of its being
// down forgets the boot. A power_down takes an armed boot back with its reason and
// leaves the drain, and slurmctld that restarts then forgets the power_down: nobody
// drains a node without a reason.
func keptByMistake(s kb.SlurmNode) bool {
	// Down after a boot that is complete is what an administrator asked for (nextstate=down).
	ours := s.Ours() && (s.Drained() || s.Down()) && !strings.HasSuffix(s.Reason, reasonComplete)
	unsaid := s.Reason == "" && s.Drained() && !s.Down() && !s.PoweredDown() && !s.PowerDownAsked()
	return (ours || unsaid) && s.Free() && (s.BootForgotten() || !s.RebootAsked() && !s.Waiting())
}

// drainForgottenBoot drains a free node whose boot for a job Slurm has forgotten. Only a node
// that is drained can be resumed, which ends that wait; with it the node would be
// taken down under a later job, and its return could not be armed.
func (d *decision) drainForgottenBoot(n *kb.Node) {
	if s, known := d.slurmNode(n.Name); known && s.Free() && n.Slurm.Awaited.Phase == kb.BootForgotten && !s.Drained() && n.Failure == nil {
		d.act(Action{Kind: DrainNode, Node: n.Name, Text: kb.ReasonReturn + " a boot that Slurm forgot"})
	}
}

// ownBoot reports whether the boot that Slurm names as the reason was the
// broker's: it was armed by it, no power saving asked for it, or its token came
// up.
func ownBoot(n *kb.Node, s kb.SlurmNode) bool {
	switch {
	case strings.HasPrefix(s.Reason, reasonLost):
		// The job is off the node, and nothing is armed that would bring it back.
		return n.Owner.IsZero()
	case s.Reason == reasonResume || s.Reason == reasonReboot:
		return !s.PoweredDown() && !s.PowerDownAsked() // a job's boot: an administrator's has a name before this text
	case strings.HasSuffix(s.Reason, reasonReboot):
		return s.Ours()
	case s.Reason == reasonUnexpected:
		return slices.ContainsFunc(n.Issued, func(i kb.Issued) bool {
			return i.Token == n.Boot.Token && i.BootID == n.Boot.BootID && i.Ref.IsStock()
		})
	}
	return false
}
