// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Inventory is the hardware of a node that a kernel must support.
type Inventory struct {
	Architecture string `json:"architecture"`
	MemoryMiB    uint64 `json:"memory_mib"`
	CPUs         uint32 `json:"cpus"`
	// Cores are the processor cores of these CPUs; 0 if the agent does not know them.
	Cores uint32 `json:"cores,omitempty"`
	// ApplicationCPUs are those that the running kernel keeps free of its own work, as a list; empty for none.
	ApplicationCPUs string `json:"application_cpus,omitempty"`
	RootDevice      string `json:"root_device"`
	RootFilesystem  string `json:"root_filesystem"`
	// InitrdRoot is the node's root where a kernel alone does not find it (the root argument UUID=, /dev/mapper/...) or
	// have it (a root in memory, by its file system), and the node has no initrd of its own; empty otherwise. Other
	// characters than a device's are dashes.
	InitrdRoot string `json:"initrd_root,omitempty"`
	// InitrdModule is a module without which the running kernel does not find its root, where the node has no initrd of its
	// own; empty otherwise.
	InitrdModule string   `json:"initrd_module,omitempty"`
	Drivers      []string `json:"drivers"`
	// Hardware is as the running kernel shows it; empty from an agent that does not report it.
	Hardware Hardware `json:"hardware,omitzero"`
}

// Limits of a node's reports: they go into its record, and parts of them into hold reasons.
const (
	maxDrivers    = 256
	maxWord       = 64
	maxRootDevice = 256
)

// Validate rejects impossible inventories: root on a node can send anything.
func (i Inventory) Validate() error {
	if len(i.Drivers) > maxDrivers {
		return fmt.Errorf("%d drivers, at most %d: %w", len(i.Drivers), maxDrivers, ErrInvalid)
	}
	for _, word := range append([]string{i.Architecture, i.RootFilesystem, i.InitrdModule}, i.Drivers...) {
		if !plainName(word, maxWord) {
			return fmt.Errorf("%.80q is no architecture, file system or driver: %w", word, ErrInvalid)
		}
	}
	if !plainName(strings.ReplaceAll(i.RootDevice, "/", ""), maxRootDevice) || len(i.RootDevice) > maxRootDevice {
		return fmt.Errorf("root device %.80q: %w", i.RootDevice, ErrInvalid)
	}
	if !plainName(strings.ReplaceAll(i.InitrdRoot, "/", ""), maxRootDevice) || len(i.InitrdRoot) > maxRootDevice {
		return fmt.Errorf("root argument %.80q: %w", i.InitrdRoot, ErrInvalid)
	}
	if err := i.Hardware.Validate(); err != nil {
		return err
	}
	if i.ApplicationCPUs != "" {
		if _, err := ParseCPUs(i.ApplicationCPUs); err != nil {
			return fmt.Errorf("application CPUs: %w", err)
		}
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
	if err := k.CheckCores(inventory); err != nil {
		return err
	}
	if err := k.CheckRoot(inventory); err != nil {
		return err
	}
	for _, driver := range inventory.Drivers {
		if !slices.Contains(k.Drivers, driver) {
			return fail("has no driver %s, which the node needs for its root, disk or network", driver)
		}
	}
	return nil
}

// PlainRoot makes a root argument one that Validate accepts: each other character becomes a dash.
func PlainRoot(root string) string {
	root = strings.Map(func(r rune) rune {
		if r == '/' || plainName("x"+string(r), 2) {
			return r
		}
		return '-'
	}, root)
	if !plainName(strings.ReplaceAll(root, "/", ""), len(root)) {
		root = "~" + root // it begins like an option or a hidden file
	}
	return root[:min(len(root), maxRootDevice)]
}

// CheckRoot refuses a kernel that would not find the node's root. Of stock the node tells which of its modules that takes.
func (k Kernel) CheckRoot(inventory Inventory) error {
	var only string
	switch {
	case k.InitrdDigest != "":
		return nil
	case inventory.InitrdRoot != "":
		only = "finds the node's root " + inventory.InitrdRoot
	case k.Ref().IsStock() && inventory.InitrdModule != "":
		only = "has the module " + inventory.InitrdModule + " before the node's root is there"
	default:
		return nil
	}
	return fmt.Errorf("kernel %q: brings no initrd, and only one %s: set boot.initrd in the node's agent.yaml: %w", k.Ref(), only, ErrFailedPrecondition)
}

// Boot is what a node reports as running.
type Boot struct {
	BootID   string    `json:"boot_id"`
	BuildID  string    `json:"build_id"`
	Release  string    `json:"release"`
	Token    string    `json:"token,omitempty"`
	BootedAt time.Time `json:"booted_at"`
	// Modules is the digest of the archive whose modules are loaded, and ModulesFault why those of this boot are not.
	Modules      string `json:"modules,omitempty"`
	ModulesFault string `json:"modules_fault,omitempty"`
	// Up is how long the kernel had run when its agent said so; 0 from an agent that does not. It is of one message only.
	Up time.Duration `json:"-"`
}

// Validate rejects impossible boots. Their text goes unchanged into reasons, comments and logs. A kernel without a build
// id cannot be proven.
func (b Boot) Validate() error {
	if len(b.BootID) < 16 || !plainName(b.BootID, maxWord) {
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
	if b.Modules != "" {
		if err := ValidateDigest(b.Modules); err != nil {
			return fmt.Errorf("modules: %w", err)
		}
	}
	// A record with another year cannot be written.
	if year := b.BootedAt.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Errorf("booted in the year %d: %w", year, ErrInvalid)
	}
	if b.ModulesFault != OneLine(b.ModulesFault) {
		return fmt.Errorf("fault of modules %.80q is not one line: %w", b.ModulesFault, ErrInvalid)
	}
	if b.Token == "" {
		return nil
	}
	return ValidateToken(b.Token)
}

// Proof is a proven boot: this node runs that kernel.
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
	// Modules is the digest of the archive that the node has to load, if any.
	Modules string `json:"modules,omitempty"`
	// BootID is the boot that used the token. The token is not valid for any other boot.
	BootID string `json:"boot_id,omitempty"`
}

// Pending is a boot that the broker requested from a node.
type Pending struct {
	Kernel     Kernel   `json:"kernel"`
	Token      string   `json:"token"`
	PrevBootID string   `json:"prev_boot_id"`
	Progress   Progress `json:"state"`
	// Generation of the desired state that first requested this boot.
	Generation uint64    `json:"generation"`
	Since      time.Time `json:"since"`
	ResetAt    time.Time `json:"reset_at,omitzero"`
	// Way is how the node boots; empty for a kexec.
	Way Way `json:"way,omitempty"`
	// LoadOnly: the node loads the kernel, and waits with its boot until Slurm was seen to wait for it.
	LoadOnly bool `json:"load_only,omitzero"`
	// From is the kernel that ran when the boot was requested.
	From Ref `json:"from,omitzero"`
	// When it was requested, loaded and executed, as far as that was seen.
	Begun    time.Time `json:"begun,omitzero"`
	Loaded   time.Time `json:"loaded,omitzero"`
	Executed time.Time `json:"executed,omitzero"`
}

// Resettable reports whether the node may be reset for the boot with this token: the boot is still requested and no
// newer boot than the one before it has appeared. bootID is the boot that the agent reports; empty without an agent.
func (n *Node) Resettable(token, bootID string) bool {
	p := n.Pending
	return p != nil && p.Token == token && p.Progress == ProgressReset && p.ResetAt.IsZero() &&
		(bootID == "" || bootID == p.PrevBootID)
}

// FailureKind is the cause of a failed switch: node or kernel.
type FailureKind string

// The kinds of failure.
const (
	FailureNone   FailureKind = ""
	FailureNode   FailureKind = "node"
	FailureKernel FailureKind = "kernel"
)

// Failure is why a node could not be brought to its kernel.
type Failure struct {
	Kind  FailureKind `json:"kind"`
	Ref   Ref         `json:"ref"`
	Cause string      `json:"cause"`
	At    time.Time   `json:"at"`
	// Drained: slurmctld has shown the drain that the broker gave the node for this.
	Drained bool `json:"drained,omitempty"`
}

// Fault is one failed boot of a kernel, identified by its token.
type Fault struct {
	Token string `json:"token"`
	Ref   Ref    `json:"ref"`
	Cause string `json:"cause"`
	// Only: no other node has booted this kernel or tried to.
	Only bool `json:"only,omitempty"`
}

// Node is the broker's record of a machine: desired and observed state.
type Node struct {
	Name string `json:"name"`
	// Generation counts the values of Told, which is what the node's agent is sent.
	Generation uint64 `json:"generation"`
	Told       Told   `json:"told,omitzero"`
	Desired    Ref    `json:"want"`
	Owner      JobID  `json:"owner"`
	// Timeline is the allocation that records the node's events: its owner, and after the job's end the same one until
	// the node has returned.
	Timeline JobID    `json:"timeline"`
	Pending  *Pending `json:"pending,omitempty"`
	Attempts uint32   `json:"attempts"`
	// RetryAt is when a boot back to stock that failed is tried again.
	RetryAt time.Time `json:"retry_at,omitzero"`
	Failure *Failure  `json:"failure,omitempty"`
	Issued  []Issued  `json:"issued,omitempty"`
	// Running is the last proof; its Ref is empty if the running kernel is unproven.
	Running   Proof     `json:"running"`
	Boot      Boot      `json:"boot"`
	Inventory Inventory `json:"inventory"`
	// Hardware as stock showed it last: another kernel may not see all of it.
	Hardware Hardware  `json:"hardware,omitzero"`
	Slurm    SlurmSide `json:"slurm,omitzero"`
	// KeptFor is the job, as scontrol names it, that the node keeps its kernel for, until KeptUntil.
	KeptFor   string    `json:"kept_for,omitempty"`
	KeptUntil time.Time `json:"kept_until,omitzero"`
	// LeftAt is when the job of the Timeline left the node, and zero some minutes later.
	LeftAt time.Time `json:"left_at,omitzero"`
	// Faults are failed boots that the catalog has not counted yet.
	Faults []Fault `json:"faults,omitempty"`
	// SlurmdStart grows whenever slurmd must be restarted with -b.
	SlurmdStart uint64 `json:"slurmd_start"`
	Kexecs      uint64 `json:"kexecs"`
	// Booted are the kernels of profiles that this node was proven to run, the
	// latest last.
	Booted []Ref `json:"booted,omitempty"`
	// Reboot is a reboot that an administrator requested.
	Reboot *Reboot `json:"reboot,omitempty"`
}

// maxIssued limits the tokens in a node's record.
const maxIssued = 8

// Issue remembers a token for a kernel.
func (n *Node) Issue(token string, kernel Kernel) {
	n.Issued = append(n.Issued, Issued{Token: token, Ref: kernel.Ref(), BuildID: kernel.BuildID, Modules: kernel.ModulesDigest})
	if over := len(n.Issued) - maxIssued; over > 0 {
		n.Issued = n.Issued[over:]
	}
}

// maxBooted limits the kernels in a node's record.
const maxBooted = 32

// HasBooted remembers a kernel that the node was proven to run.
func (n *Node) HasBooted(ref Ref) {
	if slices.Contains(n.Booted, ref) || ref.IsStock() {
		return
	}
	n.Booted = append(slices.Clone(n.Booted), ref)
	n.Booted = n.Booted[max(0, len(n.Booted)-maxBooted):]
}

// Tried reports whether the node has booted a kernel or was asked to boot it.
func (n *Node) Tried(ref Ref) bool {
	return slices.Contains(n.Booted, ref) || slices.ContainsFunc(n.Issued, func(i Issued) bool { return i.Ref == ref })
}

// Steady reports whether the node is proven to run its desired kernel.
func (n *Node) Steady() bool {
	return n.Pending == nil && n.Failure == nil && n.Running.Ref.Profile != "" && n.Runs(n.Desired)
}

// Runs reports whether the node is proven to run the named kernel. All stock kernels are equal: the firmware chooses
// among them.
func (n *Node) Runs(ref Ref) bool {
	if ref.IsStock() {
		return n.Running.Ref.IsStock()
	}
	return n.Running.Ref == ref
}

// Progress is how far the node is with its switch.
func (n *Node) Progress() Progress {
	switch {
	case n.Failure != nil:
		return ProgressFailed
	case n.Pending != nil && n.Pending.Progress == ProgressLoading:
		return ProgressLoading
	case n.Pending != nil:
		return ProgressBooting
	case n.Steady():
		return ProgressSteady
	default:
		return ProgressUnproven
	}
}

// LastJob is the job that left the node some minutes ago at most: a step of it that comes late must not run on stock.
func (n *Node) LastJob() JobID {
	if n.LeftAt.IsZero() {
		return JobID{}
	}
	return n.Timeline
}

// Clone returns a deep copy.
func (n *Node) Clone() *Node {
	c := *n
	c.Booted = slices.Clone(n.Booted)
	c.Issued, c.Faults = slices.Clone(n.Issued), slices.Clone(n.Faults)
	c.Pending, c.Failure = copied(n.Pending), copied(n.Failure)
	c.Slurm.Restore, c.Reboot = copied(n.Slurm.Restore), copied(n.Reboot)
	return &c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
