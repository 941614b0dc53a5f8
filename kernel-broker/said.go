// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"strings"
	"time"
)

// Said is why somebody else than the product took a node out of service: an
// administrator, a health check, slurmctld itself. Slurm forgets it with the
// boot that ends a return, so the node's record holds it until Slurm has it
// again.
type Said struct {
	Reason string `json:"reason"`
	// By is who said it and when, as scontrol writes it.
	By string `json:"by,omitempty"`
	// Down: the node was set down, not drained.
	Down bool `json:"down,omitempty"`
	// Fail: it was said to be about to fail.
	Fail bool `json:"fail,omitempty"`
	// BootID is the boot in which it was said.
	BootID string `json:"boot_id"`
	// Asked: Slurm is told again, and may have half of it.
	Asked bool `json:"asked,omitempty"`
}

// State is the state that Slurm is told again.
func (s Said) State() string {
	switch {
	case s.Down:
		return StateDown
	case s.Fail:
		return StateFail
	}
	return StateDrain
}

// The states in which Slurm keeps a node out of service, as scontrol sets them.
const (
	StateDrain = "drain"
	StateDown  = "down"
	StateFail  = "fail"
)

// Reboot is an administrator's reboot of a node: no kexec, the machine's own.
type Reboot struct {
	Reason string `json:"reason"`
	// BootID is the boot that it ends.
	BootID string    `json:"boot_id"`
	At     time.Time `json:"at"`
	// Due: Slurm has begun it, and no job is on the node.
	Due bool `json:"due,omitempty"`
	// Done: another boot has shown up, and Slurm has yet to hear of it.
	Done bool `json:"done,omitempty"`
	// Taken: it was taken back at Slurm for a return that no plain job
	// precedes, and comes with that.
	Taken bool `json:"taken,omitempty"`
}

// additions are what slurmctld writes behind a reason in the course of a reboot.
var additions = []string{" : reboot issued", " : reboot complete", " : reboot timed out"}

// Words are the reason without what slurmctld wrote behind it.
func (n SlurmNode) Words() string {
	words := n.Reason
	for cut := true; cut; {
		cut = false
		for _, addition := range additions {
			if rest, is := strings.CutSuffix(words, addition); is {
				words, cut = rest, true
			}
		}
	}
	return words
}

// unnamed is slurmctld's own reason for a boot that was asked for without one.
const unnamed = "Reboot ASAP"

// Unnamed reports whether the node is to be booted and nobody said why.
func (n SlurmNode) Unnamed() bool { return n.Words() == unnamed }

// Ours reports whether the reason is one of a return, or nobody's: no fault of
// the node's, and no word of an administrator's.
func (n SlurmNode) Ours() bool { return strings.HasPrefix(n.Reason, ReasonReturn) || n.Unnamed() }

// slurmWords are reasons by which slurmctld takes a node down on what it sees of
// it. They end when it sees the node well again.
var slurmWords = []string{"Not responding", "Node unexpectedly rebooted", "reboot timed out", "ResumeTimeout reached",
	"reboot requested", "reboot issued", "reboot complete", unnamed}

// Foreign reports whether the node is out of service for a reason that somebody
// gave who is not the product.
func (n SlurmNode) Foreign() bool {
	if !n.Drained() && (!n.Down() || n.Unknown()) {
		return false
	}
	words := n.Words()
	for _, own := range slurmWords {
		if strings.HasPrefix(words, own) {
			return false
		}
	}
	return words != "" && !n.Ours() && !strings.HasPrefix(words, ReasonDrain)
}

// RebootAsked reports whether Slurm is to boot the node on its own account, or
// is about it.
func (n SlurmNode) RebootAsked() bool { return n.has("REBOOT_REQUESTED") || n.has("REBOOT_ISSUED") }

// BootsForJob reports whether Slurm boots the node for a job, or did and forgot it.
// From 26.05 on that has the flag of an administrator's reboot, too, for which Slurm
// sets the node down and says so in the reason.
func (n SlurmNode) BootsForJob() bool {
	return n.has("REBOOT_ISSUED") && (n.has("POWERING_UP") || n.State != "DOWN" && n.Words() == n.Reason)
}

// Out reports whether Slurm gives the node no job, and no boot ends that.
func (n SlurmNode) Out() bool {
	return n.Name != "" && (n.Drained() || n.Down()) && !n.RebootAsked() && !n.Waiting()
}

// Says is slurmctld's word on a node: its state with the flags.
func (n SlurmNode) Says() string { return strings.Join(append([]string{n.State}, n.Flags...), "+") }
