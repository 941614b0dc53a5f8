// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Inventory is what a node reports of the hardware that a kernel must drive.
type Inventory struct {
	Architecture   string   `json:"architecture"`
	MemoryMiB      uint64   `json:"memory_mib"`
	CPUs           uint32   `json:"cpus"`
	RootDevice     string   `json:"root_device"`
	RootFilesystem string   `json:"root_filesystem"`
	Drivers        []string `json:"drivers"`
}

// Bounds of what a node says of itself. Its record goes to the store as a whole,
// and words of it into the reasons that jobs are held for.
const (
	maxDrivers    = 256
	maxWord       = 64
	maxRootDevice = 256
)

// Validate refuses what no node has: whoever is root on one can send anything.
func (i Inventory) Validate() error {
	if len(i.Drivers) > maxDrivers {
		return fmt.Errorf("%d drivers, at most %d: %w", len(i.Drivers), maxDrivers, ErrInvalid)
	}
	for _, word := range append([]string{i.Architecture, i.RootFilesystem}, i.Drivers...) {
		if !plainWord(word, maxWord) {
			return fmt.Errorf("%.80q is no architecture, file system or driver: %w", word, ErrInvalid)
		}
	}
	if !plainWord(strings.ReplaceAll(i.RootDevice, "/", ""), maxRootDevice) {
		return fmt.Errorf("root device %.80q: %w", i.RootDevice, ErrInvalid)
	}
	return nil
}

// CheckFits refuses a kernel that cannot run a node with this inventory. The
// error wraps ErrFailedPrecondition and names what is missing.
func (k Kernel) CheckFits(inventory Inventory) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("kernel %q: %s: %w", k.Ref(), fmt.Sprintf(format, args...), ErrFailedPrecondition)
	}
	if k.Architecture != inventory.Architecture {
		return fail("is for %s, the node is %s", k.Architecture, inventory.Architecture)
	}
	if inventory.MemoryMiB < k.MinMemoryMiB {
		return fail("asks for %d MiB of memory, the node has %d MiB", k.MinMemoryMiB, inventory.MemoryMiB)
	}
	for _, driver := range inventory.Drivers {
		if !slices.Contains(k.Drivers, driver) {
			return fail("has no driver %s, which the node needs for its root, disk or network", driver)
		}
	}
	return nil
}

// Boot is what a node says it runs.
type Boot struct {
	BootID   string    `json:"boot_id"`
	BuildID  string    `json:"build_id"`
	Release  string    `json:"release"`
	Token    string    `json:"token,omitempty"`
	BootedAt time.Time `json:"booted_at"`
}

// Validate refuses what no node runs. Its words go into reasons, comments and
// logs as they are. A kernel without a build id is one that nobody can prove.
func (b Boot) Validate() error {
	if len(b.BootID) < 16 || !plainWord(b.BootID, maxWord) {
		return fmt.Errorf("boot id %.80q: %w", b.BootID, ErrInvalid)
	}
	if b.BuildID != "" {
		if err := ValidateBuildID(b.BuildID); err != nil {
			return err
		}
	}
	if err := ValidateRelease(b.Release); err != nil {
		return err
	}
	if b.Token == "" {
		return nil
	}
	return ValidateToken(b.Token)
}

// Proof is a boot that the broker holds for proven: this node runs that kernel.
type Proof struct {
	Ref     Ref    `json:"ref"`
	BootID  string `json:"boot_id"`
	BuildID string `json:"build_id"`
	Release string `json:"release"`
}

// Issued is a one-time token with the kernel it was issued for.
type Issued struct {
	Token   string `json:"token"`
	Ref     Ref    `json:"ref"`
	BuildID string `json:"build_id"`
	// BootID is the boot that used the token; another one that shows it lies.
	BootID string `json:"boot_id,omitempty"`
}

// PendingState is how far a boot that the broker asked for has come.
type PendingState string

// The states of a pending boot.
const (
	// PendingLoading: the agent fetches, checks and loads. The node still runs
	// what it ran.
	PendingLoading PendingState = "loading"
	// PendingBooting: the agent said that it begins the kexec; the node is
	// silent until it shows a new boot id.
	PendingBooting PendingState = "booting"
	// PendingReset: the boot took too long, and the node is reset from
	// outside; ResetAt is when that was done.
	PendingReset PendingState = "reset"
)

// Pending is a boot that the broker asked a node for.
type Pending struct {
	Kernel     Kernel       `json:"kernel"`
	Token      string       `json:"token"`
	PrevBootID string       `json:"prev_boot_id"`
	State      PendingState `json:"state"`
	// Generation of the wish that first asked for this boot.
	Generation uint64    `json:"generation"`
	Since      time.Time `json:"since"`
	ResetAt    time.Time `json:"reset_at,omitzero"`
}

// Resettable reports whether a reset for the boot with this token may hit the
// node: it is asked for still, and no other boot than the one before it has
// shown up. bootID is what the node's agent shows; empty for no agent.
func (n *Node) Resettable(token, bootID string) bool {
	p := n.Pending
	return p != nil && p.Token == token && p.State == PendingReset && p.ResetAt.IsZero() &&
		(bootID == "" || bootID == p.PrevBootID)
}

// FailureKind tells whose fault a failed switch is.
type FailureKind string

// The kinds of failure.
const (
	FailureNode   FailureKind = "node"
	FailureKernel FailureKind = "kernel"
)

// Failure is why a node could not be brought to its kernel.
type Failure struct {
	Kind  FailureKind `json:"kind"`
	Ref   Ref         `json:"ref"`
	Cause string      `json:"cause"`
	At    time.Time   `json:"at"`
}

// Fault is one boot of a kernel that failed; the token tells it from others.
type Fault struct {
	Token string `json:"token"`
	Ref   Ref    `json:"ref"`
	Cause string `json:"cause"`
	// Only: no other node has ever booted the kernel or tried to.
	Only bool `json:"only,omitempty"`
}

// Node is what the broker wants of a machine and has seen of it.
type Node struct {
	Name string `json:"name"`
	// Generation rises with every change of the wish below.
	Generation uint64 `json:"generation"`
	Want       Ref    `json:"want"`
	Owner      JobID  `json:"owner"`
	// Timeline is the allocation whose timeline the node's events go to: its
	// owner, and after the job's end still that one until the node is back.
	Timeline JobID    `json:"timeline"`
	Pending  *Pending `json:"pending,omitempty"`
	Attempts uint32   `json:"attempts"`
	// RetryAt is when a boot back to stock that failed is tried again.
	RetryAt time.Time `json:"retry_at,omitzero"`
	Failure *Failure  `json:"failure,omitempty"`
	Issued  []Issued  `json:"issued,omitempty"`
	// Running is the last proof; its Ref is empty when what runs is unproven.
	Running   Proof     `json:"running"`
	Boot      Boot      `json:"boot"`
	Inventory Inventory `json:"inventory"`
	// Waiting: Slurm waits for a boot of this node.
	Waiting bool `json:"waiting,omitempty"`
	// Drained: the product drained this node for its Failure.
	Drained bool `json:"drained,omitempty"`
	// GateDrain is the drain, as SlurmNode.By, that the gate brought about.
	GateDrain string `json:"gate_drain,omitempty"`
	// KeptFor is the job, as scontrol names it, that the node keeps its kernel for, until KeptUntil.
	KeptFor   string    `json:"kept_for,omitempty"`
	KeptUntil time.Time `json:"kept_until,omitzero"`
	// Lost is the job that has the node and whose kernel the node has lost.
	Lost JobID `json:"lost,omitzero"`
	// LostAt is when that was seen.
	LostAt time.Time `json:"lost_at,omitzero"`
	// Faults are failed boots that the catalog has yet to count.
	Faults []Fault `json:"faults,omitempty"`
	// SlurmdStart grows whenever slurmd has to be started anew with -b.
	SlurmdStart     uint64    `json:"slurmd_start"`
	SlurmdNotBefore time.Time `json:"slurmd_not_before,omitzero"`
	Kexecs          uint64    `json:"kexecs"`
	// Booted are the kernels of profiles that this node was proven to run, the
	// latest last.
	Booted []Ref `json:"booted,omitempty"`
	// Off is the boot with which Slurm powered the node down; empty once it is
	// up again.
	Off string `json:"off,omitempty"`
	// Refused is a job that was refused since no agent has ever come from the
	// node, for whose boot Slurm waits until RefusedAt at least.
	Refused   JobID     `json:"refused,omitzero"`
	RefusedAt time.Time `json:"refused_at,omitzero"`
	// Armed: the boot that Slurm is to see to was asked for by the product,
	// whatever the reason says now.
	Armed bool `json:"armed,omitempty"`
	// ArmedAt is when that was last asked for.
	ArmedAt time.Time `json:"armed_at,omitzero"`
	// ArmedIssued: Slurm has begun that boot.
	ArmedIssued bool `json:"armed_issued,omitempty"`
	// Said is what an administrator said of the node and Slurm is about to forget.
	Said *Said `json:"said,omitempty"`
	// SlurmdHeld: slurmd may not answer before Slurm has Said again.
	SlurmdHeld bool `json:"slurmd_held,omitempty"`
	// KnownBoot is a boot that Slurm does not look for and must not be told of.
	KnownBoot string `json:"known_boot,omitempty"`
	// Reboot is the reboot that an administrator asked for.
	Reboot *Reboot `json:"reboot,omitempty"`
}

// maxIssued is how many tokens a node's record remembers.
const maxIssued = 8

// Issue remembers a token for a kernel.
func (n *Node) Issue(token string, kernel Kernel) {
	n.Issued = append(n.Issued, Issued{Token: token, Ref: kernel.Ref(), BuildID: kernel.BuildID})
	if over := len(n.Issued) - maxIssued; over > 0 {
		n.Issued = n.Issued[over:]
	}
}

// maxBooted is how many kernels a node's record remembers.
const maxBooted = 32

// HasBooted remembers a kernel that the node was proven to run.
func (n *Node) HasBooted(ref Ref) {
	if slices.Contains(n.Booted, ref) || ref.IsStock() {
		return
	}
	n.Booted = append(slices.Clone(n.Booted), ref)
	n.Booted = n.Booted[max(0, len(n.Booted)-maxBooted):]
}

// Tried reports whether the node has booted a kernel or was asked to.
func (n *Node) Tried(ref Ref) bool {
	return slices.Contains(n.Booted, ref) || slices.ContainsFunc(n.Issued, func(i Issued) bool { return i.Ref == ref })
}

// Steady reports whether the node is proven to run what it shall run.
func (n *Node) Steady() bool {
	return n.Pending == nil && n.Failure == nil && n.Running.Ref.Profile != "" && n.Runs(n.Want)
}

// Runs reports whether the node is proven to run the kernel named. Any stock
// kernel is as good as another: firmware boots the one it was given.
func (n *Node) Runs(ref Ref) bool {
	if ref.IsStock() {
		return n.Running.Ref.IsStock()
	}
	return n.Running.Ref == ref
}

// PhaseName is the word users read for where the node is.
func (n *Node) PhaseName() string {
	switch {
	case n.Failure != nil:
		return "failed"
	case n.Pending != nil && n.Pending.State == PendingLoading:
		return "loading"
	case n.Pending != nil:
		return "booting"
	case n.Steady():
		return "steady"
	default:
		return "unproven"
	}
}

// Clone returns a copy that shares nothing mutable.
func (n *Node) Clone() *Node {
	c := *n
	c.Booted = slices.Clone(n.Booted)
	c.Issued, c.Faults = slices.Clone(n.Issued), slices.Clone(n.Faults)
	if n.Pending != nil {
		p := *n.Pending
		c.Pending = &p
	}
	if n.Failure != nil {
		f := *n.Failure
		c.Failure = &f
	}
	if n.Said != nil {
		s := *n.Said
		c.Said = &s
	}
	if n.Reboot != nil {
		r := *n.Reboot
		c.Reboot = &r
	}
	return &c
}
