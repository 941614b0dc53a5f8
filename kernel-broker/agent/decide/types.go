// SPDX-License-Identifier: Apache-2.0

// Package decide is the agent's judgement, and it is pure: from what the broker
// wants, what the node shows and the time it picks the one thing to do next.
// The agent does that thing, looks again, and asks again; so every step is
// taken on the newest wish, and an agent that was killed carries on by looking.
//
// Three rules hold whatever comes in. A kernel is booted only when it was
// loaded for the wish that still stands, slurmd is down and the broker has been
// told. Slurmd starts only when the broker allows it and the gate's file says
// what the broker said. And on a kernel that came with a token, slurmd waits
// until the broker vouches for that kernel.
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

// Same compares two targets. A kernel that is signed anew is the same kernel.
func (t Target) Same(other Target) bool {
	return t.Token == other.Token && reflect.DeepEqual(t.Kernel, other.Kernel)
}

// Switch is the switch in hand.
type Switch struct {
	Progress kb.Progress
	Target   Target
	// Generation that was announced, or given up.
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
	// Start is the highest start number carried out in this boot.
	Start uint64
}

// Observed is what the node shows.
type Observed struct {
	Boot      kb.Boot
	Inventory kb.Inventory
	// Fresh: the wish came over the stream that is up now.
	Fresh  bool
	Switch Switch
	// Leftover: an image is loaded that no switch in hand accounts for.
	Leftover bool
	Slurmd   Slurmd
	// State is what the gate reads; zero when there is none.
	State nodestate.State
	// GraceEnds is when a node without a broker helps itself.
	GraceEnds time.Time
	// Awaited: slurmctld waits for a boot of this node, which no job has; the
	// node asks for that itself only while the broker is away. It holds until
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
	// Unload takes a loaded image out again.
	Unload
	// WriteState writes Action.State for the gate.
	WriteState
	// Fetch brings the target's artifacts into the cache.
	Fetch
	// Load checks the digests and loads the target.
	Load
	// StopSlurmd ends slurmd; its steps live on.
	StopSlurmd
	// StartSlurmd starts it, as number Action.Start.
	StartSlurmd
	// Announce tells the broker that the node boots now.
	Announce
	// Execute boots the loaded target.
	Execute
	// Fail gives the target up; Action.Fault and Reason say why.
	Fail
	// Reboot has the machine reboot by its firmware.
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
	// Claim: the slurmd that starts says that the node has booted.
	Claim bool
	Fault kb.FailureKind
}
