// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "time"

// SlurmSide is Slurm's side of a node: which boot slurmctld waits for and whose it is, and by whose word the node is in or
// out of service. Package observe makes the next one of the last and of what slurmctld shows.
type SlurmSide struct {
	// Awaited is the boot that the node's next registration ends.
	Awaited SlurmBoot `json:"awaited,omitzero"`
	// Requested is the boot that slurmctld issues when no job is on the node. A job's boot and the return after it are
	// under way at once.
	Requested SlurmBoot `json:"requested,omitzero"`
	Service   Service   `json:"service,omitzero"`
	// Registered is a boot id that slurmctld knows: slurmd must not claim a boot in it.
	Registered string `json:"registered,omitempty"`
	// Restore is an administrator's state and reason that slurmctld is about to forget.
	Restore *OutOfService `json:"restore,omitempty"`
	// PoweredOffBoot is the boot in which Slurm powered the node down; empty once the node is up again.
	PoweredOffBoot string `json:"off,omitempty"`
	// Told is when slurmctld was told what it has to know before the node's slurmd answers: an administrator's state, or a
	// boot that it does not wait for. It is zero while slurmd need not wait for that.
	Told time.Time `json:"told,omitzero"`
}

// SlurmBoot is a boot of a node as slurmctld sees it.
type SlurmBoot struct {
	Phase BootPhase `json:"phase,omitempty"`
	Owner BootOwner `json:"owner,omitempty"`
	// Since is when the broker asked for it, until slurmctld shows it, or when slurmctld began to wait for it.
	Since time.Time `json:"since,omitzero"`
}

// BootPhase is how far a boot is in slurmctld.
type BootPhase string

// The phases, of which a boot may skip any.
const (
	BootNone BootPhase = ""
	// BootAsked: the broker sends the request, and slurmctld has yet to show it.
	BootAsked BootPhase = "asked"
	// BootRequested: REBOOT_REQUESTED.
	BootRequested BootPhase = "requested"
	// BootPoweringUp: POWERING_UP, with or without REBOOT_ISSUED.
	BootPoweringUp BootPhase = "powering up"
	// BootIssued: REBOOT_ISSUED, and the node is down.
	BootIssued BootPhase = "issued"
	// BootForgotten: REBOOT_ISSUED, and the node is up, since slurmd answered too early. slurmctld will not notice the boot.
	BootForgotten BootPhase = "forgotten"
)

// BootOwner is who asked for a boot.
type BootOwner string

// The owners.
const (
	OwnerNone          BootOwner = ""
	OwnerBroker        BootOwner = "broker" // a return
	OwnerJob           BootOwner = "job"
	OwnerAdministrator BootOwner = "administrator"
)

// Awaits reports whether slurmctld waits for a boot and will notice it.
func (b SlurmBoot) Awaits() bool { return b.Phase == BootPoweringUp || b.Phase == BootIssued }

// Armed reports whether the broker asked for the boot that slurmctld issues or has issued.
func (s SlurmSide) Armed() bool {
	return s.Requested.Owner == OwnerBroker || s.Awaited.Owner == OwnerBroker
}

// ByAdministrator reports whether slurmctld boots the node, now or later, for an administrator.
func (s SlurmSide) ByAdministrator() bool {
	return s.Requested.Owner == OwnerAdministrator || s.Awaited.Owner == OwnerAdministrator
}

// Service is a node's state in slurmctld, and whose word it is.
type Service struct {
	State  ServiceState  `json:"state,omitempty"`
	Author ServiceAuthor `json:"author,omitempty"`
	// Reason is without what slurmctld adds to it during a boot.
	Reason string `json:"reason,omitempty"`
	// By is the reason's author and time, in scontrol's format.
	By string `json:"by,omitempty"`
	// Until is when slurmctld ends that state by itself (resumeafter=).
	Until time.Time `json:"until,omitzero"`
}

// ServiceState is whether jobs may begin on a node.
type ServiceState string

// The states. A node that slurmctld has down for no more than its boot is drained or in service, by its flags.
const (
	ServiceIn      ServiceState = ""
	ServiceDrained ServiceState = "drained"
	ServiceFailing ServiceState = "failing"
	ServiceDown    ServiceState = "down"
)

// ServiceAuthor is whose word a node's state is.
type ServiceAuthor string

// The authors.
const (
	AuthorNone ServiceAuthor = ""
	// AuthorReturn and AuthorFailure: the broker, for a return or for a node that failed.
	AuthorReturn  ServiceAuthor = "return"
	AuthorFailure ServiceAuthor = "failure"
	// AuthorGate: slurmctld drained the node, since the gate refused a job.
	AuthorGate ServiceAuthor = "gate"
	// AuthorProlog: slurmctld's, as the gate's, where the site has a prolog of its own that may have failed.
	AuthorProlog ServiceAuthor = "prolog"
	// AuthorKernel: slurmd registered less on a profile's kernel than slurm.conf says of the node.
	AuthorKernel    ServiceAuthor = "kernel"
	AuthorSlurmctld ServiceAuthor = "slurmctld"
	// AuthorAdministrator, or a program of the site's.
	AuthorAdministrator ServiceAuthor = "administrator"
	// AuthorWithdrawn: an administrator's, who resumed the node. slurmctld still has the reason, and shows it as that of a
	// drain once a boot is requested.
	AuthorWithdrawn ServiceAuthor = "withdrawn"
)

// Nobodys reports whether no person said it: the gate or the kernel brought it about.
func (s Service) Nobodys() bool { return s.Author == AuthorGate || s.Author == AuthorKernel }
