// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "time"

// DesiredState is all that the broker wants of a node; Generation numbers it.
type DesiredState struct {
	Generation uint64
	// Kernel to boot, with its token and the signature that it has now; nil to
	// keep what runs.
	Kernel   *Kernel
	Token    string
	Envelope []byte
	// Attested: the broker holds Running for proven.
	Attested bool
	Running  Ref
	Jobs     []uint32
	// Lost are the jobs that have the node and whose kernel it has lost.
	Lost            []uint32
	SlurmdAllowed   bool
	SlurmdStart     uint64
	SlurmdNotBefore time.Time
	// SlurmdWait says the same by no clock.
	SlurmdWait time.Duration
	// NoBootAwaited: a start of slurmd that claims a boot is a crash to Slurm.
	NoBootAwaited bool
	// BootKnown: nobody tells Slurm of this boot, not even the first slurmd.
	BootKnown bool
	// Reboot: the machine is to reboot by its firmware.
	Reboot bool
}

// DesiredRun is what an agent is to do about one profiling run.
type DesiredRun struct {
	Run        uint64
	Job        JobID
	UID        uint32
	Collectors []string
	// Ended: the job has left; deliver, or say that there is nothing.
	Ended bool
	// Watched: figures are wanted while the job runs.
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
	// JobUID is the user of the job that has the node.
	JobUID uint32
	// Slurm is what slurmctld said of it at the last poll.
	Slurm SlurmNode
}
