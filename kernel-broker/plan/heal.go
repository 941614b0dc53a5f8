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
	reasonResume     = "ResumeTimeout reached"
	reasonUnexpected = "Node unexpectedly rebooted"
)

// healDelay gives a slurmd that has just begun to run time to register: after the
// resume that would be one more boot that nobody expects.
const healDelay = 5 * time.Second

// heal resumes a node that Slurm took down over a boot of the broker's own: one
// that the broker was away for longer than Slurm waits; or that Slurm keeps
// drained for such a boot, which it forgot. The node is back on stock and its
// slurmd runs. Any other reason is somebody else's.
func (d *decision) heal(n *kb.Node, agent Agent) {
	s, known := d.slurmNode(n.Name)
	timedOut := s.State == "DOWN" && !s.Waiting() && !s.Armed() && ownBoot(n, s)
	forgotten := s.BootForgotten() && strings.HasPrefix(s.Reason, kb.ReasonReturn)
	if !known || !timedOut && !forgotten {
		return
	}
	if n.Want.IsStock() && n.Steady() && agent.Connected && agent.Slurmd.Running && d.in.Slurm.At.Sub(agent.Slurmd.At) > healDelay {
		d.act(Action{Kind: ResumeNode, Node: n.Name, Text: s.Reason})
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
	case strings.HasSuffix(s.Reason, reasonReboot):
		return s.Ours()
	case s.Reason == reasonResume:
		return !s.Powered()
	case s.Reason == reasonUnexpected:
		return slices.ContainsFunc(n.Issued, func(i kb.Issued) bool {
			return i.Token == n.Boot.Token && i.BootID == n.Boot.BootID && i.Ref.IsStock()
		})
	}
	return false
}
