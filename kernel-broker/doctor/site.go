// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Fact is something that was looked for. Value is nil if it could not be had, and Why says why.
type Fact[T any] struct {
	Value *T
	Why   string
}

// Known is a fact.
func Known[T any](value T) Fact[T] { return Fact[T]{Value: &value} }

// Unknown is a fact that could not be had.
func Unknown[T any](why string) Fact[T] { return Fact[T]{Why: why} }

// Site is what one host can see of a cluster and of itself.
type Site struct {
	Host    string
	Version string // of this kernelctl
	Now     time.Time

	// Slurm, as slurmctld has it.
	Slurmctld  Fact[Answer]
	Slurm      Fact[SlurmConfig]
	SlurmNodes Fact[map[string]kb.SlurmNode]
	// Moving are reservations whose nodes Slurm chooses, and may replace.
	Moving     Fact[[]string]
	Partitions Fact[[]Partition]
	// SlurmUser is who slurmctld and its hooks run as.
	SlurmUser Fact[SlurmUser]
	// Programs that slurm.conf names, by its key, where this host runs them.
	Programs  map[string]Fact[[]Program]
	JobSubmit Fact[JobSubmit]
	Plugstack Fact[Plugstack]
	Plugin    Fact[Plugin]
	Snapshot  Fact[Snapshot]

	// The broker: its files on its host, and what it answers.
	Client       Fact[ClientFile]
	BrokerFile   Fact[BrokerFile]
	Broker       Fact[Answer]
	Health       Fact[Health]
	Port         Fact[Port]
	Authorities  Fact[[]Certificate]
	Certificates Fact[map[string][]Certificate] // good ones of each enrolled node
	Revoked      []string                       // nodes that have had no certificate since they were revoked
	Artifacts    Fact[Capacity]
	Database     Fact[Capacity]
	Disks        Fact[[]Disk]
	Nodes        Fact[[]Node]
	Profiles     Fact[[]kb.Profile]
	// Ignored says of each kernel with arguments that need a configuration what the kernel ignores; empty for nothing.
	Ignored map[kb.Ref]Fact[string]

	// Agent is a compute node's own.
	Agent Fact[Agent]
}

// Answer is whether a service answers.
type Answer struct {
	Address string
	Error   string // empty: it does
}

// Program that Slurm runs.
type Program struct {
	Path string
	Is   ProgramIs
}

// ProgramIs says what a path holds.
type ProgramIs string

// What a path may hold. A script that names the product's program counts as one that calls it.
const (
	ProgramMissing       ProgramIs = "missing"
	ProgramNotExecutable ProgramIs = "not executable"
	ProgramOurs          ProgramIs = "ours"
	ProgramCallsOurs     ProgramIs = "a script that calls ours"
	ProgramOther         ProgramIs = "another program"
)

// JobSubmit is the job_submit.lua of slurmctld.
type JobSubmit struct {
	Path string
	// Error is why it cannot be read.
	Error string
	// Ours: it is the product's own file.
	Ours bool
	// Loads is the product's file that a site's script loads, empty for none; Missing: it is not there.
	Loads   string
	Missing bool
	// Submit and Modify: it calls the product's functions.
	Submit, Modify bool
}

// Partition of Slurm's. Shares: it puts several jobs on a node, whatever they ask for.
type Partition struct {
	Name            string
	Default, Shares bool
}

// SlurmUser is slurmctld's user, and the files that it cannot open.
type SlurmUser struct {
	Name, Group string
	Closed      []ClosedFile
}

// ClosedFile is one that a user cannot open.
type ClosedFile struct {
	Path string
	Use  Use
}

// Use is what a file is for.
type Use string

// What SlurmUser opens.
const (
	UseSettings Use = "settings"
	UseScript   Use = "script"
	UseProgram  Use = "program"
)

// Command is a program that a configuration names under a key. Error is why it cannot be run.
type Command struct{ Key, Error string }

// Plugstack is plugstack.conf with its includes.
type Plugstack struct {
	Path  string
	Error string
	Lines []PlugstackLine
}

// Plugin is the file of the SPANK plugin.
type Plugin struct {
	Path, Error string
	// Slurm is the version that it was compiled for, such as 22.05; Installed is that of this host's Slurm, empty if
	// scontrol does not say it.
	Slurm, Installed string
}

// Snapshot of the catalog on this host.
type Snapshot struct {
	Path, Error string
	// Closed is why users cannot read it; empty: they can.
	Closed string
	// Stale: the broker has another one.
	Stale bool
}

// ClientFile is client.yaml.
type ClientFile struct {
	Path, Error string
	Local       bool // the broker's socket on this host, and no address on the network
	TLS         bool
	Cluster     string // empty: any
	PrologLimit time.Duration
	// Commands that the hooks run, which are not here.
	Commands []Command
	// Counters is why Slurm's user cannot count failed hooks; empty: it can.
	Counters Fact[string]
}

// BrokerFile is broker.yaml.
type BrokerFile struct {
	Path, Error string
	Cluster     string
	TLS         string // own, site, none
	TrustList   string
	LoadLimit   time.Duration
	// Accounts that the policy names.
	Accounts []string
}

// Health is the broker's own.
type Health struct {
	Version string
	// Ahead is how much its clock is ahead of this host's; nil from an older broker.
	Ahead *time.Duration
	// Ill components, with their texts, and those with a warning.
	Ill, Warned map[string]string
}

// Port for agents, seen from here.
type Port struct {
	Answer
	// Certificate that the broker shows there; nil without TLS.
	Certificate *Certificate
}

// Certificate has the time in which it is good, and the cluster that it is for, empty where that is not known.
type Certificate struct {
	From, Until time.Time
	Cluster     string
}

// Capacity is a store that may fill up. Limit 0: none.
type Capacity struct {
	Name        string
	Used, Limit uint64
}

// Disk is a file system.
type Disk struct {
	Path       string
	Free, Size uint64
	// Least is how much must be free; 0 for a usual part of it.
	Least uint64
}

// Node as the broker knows it.
type Node struct {
	Name         string
	Connected    bool
	Phase, Cause string
	AgentVersion string // empty: not known
	Inventory    kb.Inventory
}

// Agent is this compute node.
type Agent struct {
	Path, Error string
	Node        string
	// Answers is why the agent does not answer; NotConnected: it does and has no broker.
	Answers      string
	NotConnected bool
	TLS          string
	TrustList    string // empty: it boots unsigned kernels
	Certificate  Fact[Certificate]
	Kexec        Program
	// NoKexec is why the running kernel takes none.
	NoKexec string
	// NoCgroup2 is why collectors find no job's cgroup; NoPanic is why a kernel that panics hangs. Empty: it is as it
	// should be.
	NoCgroup2, NoPanic string
	// Commands of its configuration that are not here.
	Commands []Command
	// Edited: agent.yaml is another one than the agent started with.
	Edited bool
	// Systemd: it starts slurmd by its unit. UnitEnabled: something else would, too. DropIn: the unit waits for the agent.
	Systemd, UnitEnabled, DropIn bool
	// Reports: slurmd's options have -b at every start.
	Reports string
}
