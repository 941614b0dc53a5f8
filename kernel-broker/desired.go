// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "time"

// DesiredState is the state that the broker requests of a node; Generation numbers
// it.
type DesiredState struct {
	Generation uint64
	// Kernel to boot, with its token and the signature that it has now; nil to
	// keep what runs.
	Kernel   *Kernel
	Token    string
	Envelope []byte
	// Attested: the broker has proven Running.
	Attested bool
	Running  Ref
	Jobs     []uint32
	// Lost are the jobs that have the node and whose kernel it has lost.
	Lost            []uint32
	SlurmdAllowed   bool
	SlurmdStart     uint64
	SlurmdNotBefore time.Time
	// SlurmdWait is the same as a duration, for a node whose clock differs.
	SlurmdWait time.Duration
	// NoBootAwaited: a start of slurmd that claims a boot is a crash to Slurm.
	NoBootAwaited bool
	// BootKnown: Slurm is not to be told of this boot, not even by the first slurmd.
	BootKnown bool
	// LoadOnly: the kernel is to be loaded, and not yet booted.
	LoadOnly bool
	// Reboot: the machine is to reboot by its firmware.
	Reboot bool
}

// Permit is whether a node's slurmd may run.
type Permit string

// The permits. Without one the node runs no kernel on which it might.
const (
	// SlurmdHeld: slurmctld has to say or to be told something first, which the registration would end.
	SlurmdHeld    Permit = "held"
	SlurmdAllowed Permit = "allowed"
)

// Told is the part of a node's desired state that its record decides. Two are the same if they are equal, and a node's
// Generation counts those that differ.
type Told struct {
	// Token of the boot by kexec that is requested, of the kernel in Node.Pending; empty if none is.
	Token           string    `json:"token,omitempty"`
	LoadOnly        bool      `json:"load_only,omitempty"`
	Reboot          bool      `json:"reboot,omitempty"`
	Attested        bool      `json:"attested,omitempty"`
	Running         Ref       `json:"running,omitzero"`
	Job             uint32    `json:"job,omitempty"`
	Lost            uint32    `json:"lost,omitempty"`
	Slurmd          Permit    `json:"slurmd,omitempty"`
	SlurmdStart     uint64    `json:"slurmd_start,omitempty"`
	SlurmdNotBefore time.Time `json:"slurmd_not_before,omitzero"`
	NoBootAwaited   bool      `json:"no_boot_awaited,omitempty"`
	BootKnown       bool      `json:"boot_known,omitempty"`
}

// DesiredState is the node's, as it is sent now.
func (n *Node) DesiredState(now time.Time) DesiredState {
	t := n.Told
	d := DesiredState{
		Generation: n.Generation, Token: t.Token, LoadOnly: t.LoadOnly, Reboot: t.Reboot, Attested: t.Attested, Running: t.Running,
		SlurmdAllowed: t.Slurmd == SlurmdAllowed, SlurmdStart: t.SlurmdStart, NoBootAwaited: t.NoBootAwaited, BootKnown: t.BootKnown,
	}
	if p := n.Pending; p != nil && t.Token != "" {
		d.Kernel = &p.Kernel
	}
	if t.Job != 0 {
		d.Jobs = []uint32{t.Job}
	}
	if t.Lost != 0 {
		d.Lost = []uint32{t.Lost}
	}
	// A time that is past is not told: the node's clock may be behind.
	if t.SlurmdNotBefore.After(now) {
		d.SlurmdNotBefore, d.SlurmdWait = t.SlurmdNotBefore, t.SlurmdNotBefore.Sub(now)
	}
	return d
}

// DesiredRun is what an agent is to do about one profiling run.
type DesiredRun struct {
	Run uint64
	Job JobID
	UID uint32
	// Cgroup is the name of the job's cgroup, empty for job_ID.
	Cgroup     string
	Collectors []string
	// Ended: the job has left; deliver the result, or report that there is none.
	Ended bool
	// Watched: a client reads figures while the job runs.
	Watched bool
}

// Hello begins an agent's stream.
type Hello struct {
	Node          string
	Boot          Boot
	Inventory     Inventory
	AgentVersion  string
	SlurmdRunning bool
}

// SwitchReport is an agent's report on one generation of the desired state.
type SwitchReport struct {
	Generation uint64
	Progress   Progress
	// Kind of a failure.
	Kind   FailureKind
	Detail string
	At     time.Time
}

// SlurmdReport is an agent's report on its slurmd and on what the gate refused.
type SlurmdReport struct {
	// Generation of the desired state that the gate goes by.
	Generation uint64
	Running    bool
	Start      uint64
	Detail     string
	Refusals   []GateRefusal
}

// RunReport is an agent's newest report on a profiling run; figures alone have
// no state.
type RunReport struct {
	State  RunNodeState
	Reason string
}

// NodeView is a node's record with what is known of its agent now.
type NodeView struct {
	Node      *Node
	Connected bool
	LastSeen  time.Time
	// AgentVersion is what the connected agent states.
	AgentVersion string
	// SlurmdCause is why slurmd is down, as the connected agent says.
	SlurmdCause string
	// JobUID is the user of the job that has the node.
	JobUID uint32
	// Slurm is its state in slurmctld at the last poll.
	Slurm SlurmNode
}
