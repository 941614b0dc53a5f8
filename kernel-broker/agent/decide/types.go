// SPDX-License-Identifier: Apache-2.0

// Package decide is the agent's decision function, and it is pure: from the
// desired state, the observed state and the time it picks the next action. The
// agent performs that action, observes the node and asks again; so every step
// follows the newest desired state, and an agent that was killed continues from
// what it observes.
//
// Three rules always hold. A kernel is booted only when it was loaded for the
// present desired state, slurmd is down and the broker has acknowledged it.
// Slurmd starts only when the broker allows it and the gate's file has what the
// broker sent. And on a kernel that was booted with a token, slurmd waits until
// the broker has proven that kernel.
package decide

import (
	"reflect"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

// Target is a kernel with the token to boot it with. The token makes two boots
// of the same kernel different.
type Target struct {
	Kernel kb.Kernel
	Token  string
	// Envelope is the kernel's signature.
	Envelope []byte
}

// Same compares two targets. A kernel with a new signature is the same kernel.
func (t Target) Same(other Target) bool {
	return t.Token == other.Token && reflect.DeepEqual(t.Kernel, other.Kernel)
}

// Switch is the switch under way.
type Switch struct {
	Progress kb.Progress
	Target   Target
	// Generation that was announced, or has failed.
	Generation uint64
	Fault      kb.FailureKind
	Cause      string
}

// Mark is what the agent last did to slurmd in this boot.
type Mark int

// The marks.
const (
	// Untouched: no agent started or stopped slurmd in this boot.
	Untouched Mark = iota
	Started
	Stopped
)

func (m Mark) String() string { return [...]string{"untouched", "started", "stopped"}[m] }

// Slurmd as observed.
type Slurmd struct {
	Running bool
	Mark    Mark
	// Died: it ended by itself after the agent had started it; nobody stopped it.
	Died bool
	// Start is the highest start number carried out in this boot.
	Start uint64
}

// Observed is what the node shows.
type Observed struct {
	Boot      kb.Boot
	Inventory kb.Inventory
	// Fresh: the desired state came over the stream that is up now.
	Fresh  bool
	Switch Switch
	// Leftover: an image is loaded that belongs to no switch under way.
	Leftover bool
	Slurmd   Slurmd
	// Deaths are when slurmd ended by itself of late, oldest first.
	Deaths []time.Time
	// State is what the gate reads; zero when there is none.
	State nodestate.State
	// GraceEnds is when a node without a broker decides for itself.
	GraceEnds time.Time
	// Awaited: slurmctld waits for a boot of this node, which no job with a profile
	// has; the node asks for that itself only while the broker is away. It holds until
	// slurmd has been started, which claims the boot.
	Awaited bool
	// Hold keeps an action that just failed from being tried at once.
	Hold [Kinds]time.Time
}

// Kind of an action.
type Kind int

// The actions.
const (
	// Wait: nothing to do before Action.Wake, or before something changes.
	Wait Kind = iota
	// Unload removes a loaded image.
	Unload
	// WriteState writes Action.State for the gate.
	WriteState
	// Fetch brings the target's artifacts into the cache.
	Fetch
	// Load checks the digests and loads the target.
	Load
	// StopSlurmd ends slurmd; its steps continue.
	StopSlurmd
	// StartSlurmd starts it, as number Action.Start.
	StartSlurmd
	// Announce tells the broker that the node boots now.
	Announce
	// Execute boots the loaded target.
	Execute
	// Fail ends the switch as failed; Action.Fault and Reason say why.
	Fail
	// Reboot reboots the machine by its firmware.
	Reboot
	// Kinds is how many there are.
	Kinds
)

func (k Kind) String() string {
	return [...]string{"wait", "unload", "write state", "fetch", "load", "stop slurmd", "start slurmd",
		"announce", "execute", "fail", "reboot"}[k]
}

// Action is the next thing to do.
type Action struct {
	Kind   Kind
	Reason string
	// Wake is when to ask again although nothing changed; zero for never.
	Wake       time.Time
	Target     Target
	Generation uint64
	State      nodestate.State
	Start      uint64
	// Claim: the slurmd that starts tells Slurm that the node has booted.
	Claim bool
	Fault kb.FailureKind
}
