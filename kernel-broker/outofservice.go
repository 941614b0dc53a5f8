// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"strings"
	"time"
)

// OutOfService is a state and reason that an administrator, a health check or slurmctld gave a node. Slurm forgets it with the
// boot that ends a return, so the node's record keeps it until Slurm has it again.
type OutOfService struct {
	Reason string `json:"reason"`
	// By is its author and time, in scontrol's format.
	By string `json:"by,omitempty"`
	// Down: the node was set down, not drained.
	Down bool `json:"down,omitempty"`
	// Fail: the node was set to fail.
	Fail bool `json:"fail,omitempty"`
	// Until is when Slurm is to end it by itself (resumeafter=); zero if it is not.
	Until time.Time `json:"until,omitzero"`
	// BootID is the boot in which it was given.
	BootID string `json:"boot_id"`
	// Asked: the state is being set in Slurm, which may have half of it.
	Asked bool `json:"asked,omitempty"`
}

// State is the state to set again in Slurm.
func (s OutOfService) State() string {
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

// Reboot is an administrator's reboot of a node, or one that a job asked for: no kexec, the machine's own.
type Reboot struct {
	Reason string `json:"reason"`
	// BootID is the boot that it ends.
	BootID string    `json:"boot_id"`
	At     time.Time `json:"at"`
	// Due: Slurm has begun it, and no job is on the node.
	Due bool `json:"due,omitempty"`
	// Done: a new boot was seen; Slurm has not registered it yet.
	Done bool `json:"done,omitempty"`
	// Taken: it was withdrawn from Slurm for a return that no plain job precedes, and happens with that return.
	Taken bool `json:"taken,omitempty"`
	// ForJob: a job without a profile asked for it (sbatch --reboot) and waits on the node.
	ForJob bool `json:"for_job,omitempty"`
}

// additions are suffixes that slurmctld adds to a reason during a reboot.
var additions = []string{" : reboot issued", " : reboot complete", " : reboot timed out"}

// PlainReason returns the reason without slurmctld's suffixes.
func (n SlurmNode) PlainReason() string {
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

// unnamed is slurmctld's default reason for a requested boot.
const unnamed = "Reboot ASAP"

// Unnamed reports whether the node is to be booted without a stated reason.
func (n SlurmNode) Unnamed() bool { return n.PlainReason() == unnamed }

// Ours reports whether the reason is empty or belongs to a return, not to a fault of the node or an administrator.
func (n SlurmNode) Ours() bool { return strings.HasPrefix(n.Reason, ReasonReturn) || n.Unnamed() }

// slurmWords are reasons with which slurmctld itself takes a node down. They end when the node is healthy again.
var slurmWords = []string{"Not responding", "Node unexpectedly rebooted", "reboot timed out", "ResumeTimeout reached",
	"reboot requested", "reboot issued", "reboot complete", unnamed}

// Foreign reports whether the node is out of service for a reason that the product did not set.
func (n SlurmNode) Foreign() bool {
	if !n.Drained() && (!n.Down() || n.Unknown()) {
		return false
	}
	words := n.PlainReason()
	if n.Misfit() {
		return false
	}
	for _, own := range slurmWords {
		if words == own || strings.HasPrefix(words, own+" : ") {
			return false
		}
	}
	return words != "" && !n.Ours() && !strings.HasPrefix(words, ReasonDrain)
}

// RebootAsked reports whether Slurm is to boot the node on its own account, or
// is about it.
func (n SlurmNode) RebootAsked() bool { return n.has("REBOOT_REQUESTED") || n.has("REBOOT_ISSUED") }

// BootsForJob reports whether Slurm boots the node for a job, or did and forgot it. From 26.05 on such a boot has the
// flag of an administrator's reboot too; for the latter, Slurm also sets the node down, with that reason.
func (n SlurmNode) BootsForJob() bool {
	return n.has("REBOOT_ISSUED") && (n.has("POWERING_UP") || n.State != "DOWN" && n.PlainReason() == n.Reason)
}

// Out reports whether Slurm schedules no job on the node and no boot changes that.
func (n SlurmNode) Out() bool {
	return n.Name != "" && (n.Drained() || n.Down()) && !n.RebootAsked() && !n.Waiting()
}

// FullState is the node's state in slurmctld, with flags.
func (n SlurmNode) FullState() string {
	return strings.Join(append([]string{n.State}, n.Flags...), "+")
}
