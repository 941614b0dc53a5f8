// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Config holds the limits that decisions depend on.
//
// The keys are those of switch in broker.yaml.
type Config struct {
	// SwitchLimit bounds the time from Ensure to ready.
	SwitchLimit time.Duration `yaml:"limit"`
	// LoadLimit bounds fetching and loading on a node.
	LoadLimit time.Duration `yaml:"load_limit"`
	// ResetGrace is the time a node has to come back after a reset, at least RebootTimeout.
	ResetGrace time.Duration `yaml:"reset_grace"`
	// AgentLimit is how long an owned node's agent may be silent before the
	// kexec has begun.
	AgentLimit time.Duration `yaml:"agent_limit"`
	// RegisterDelay, counted from the begin of the second of the request,
	// keeps slurmd from registering in the second of the boot
	// request, which slurmctld would ignore.
	RegisterDelay time.Duration `yaml:"register_delay"`
	// RegisterRetry is when slurmd is restarted if Slurm still waits.
	RegisterRetry time.Duration `yaml:"register_retry"`
	// KeepLimit is how long a node is kept for the next job.
	KeepLimit time.Duration `yaml:"keep_limit"`
	// StockTimeout and StockAttempts bound a boot back to stock.
	StockTimeout  time.Duration `yaml:"stock_timeout"`
	StockAttempts uint32        `yaml:"stock_attempts"`
	// RunDeliverLimit is how long after the job's end a node may take to deliver
	// what its collectors found.
	RunDeliverLimit time.Duration `yaml:"-"`
	// RunRequestLimit is how long a profiling run waits for a job.
	RunRequestLimit time.Duration `yaml:"-"`
	// RunsOfUser is how many runs of one user's jobs are under way at a time; 0: any number.
	RunsOfUser int `yaml:"-"`
	// RebootTimeout bounds a reboot by the node's own boot loader.
	RebootTimeout time.Duration `yaml:"reboot_timeout"`
	// ReturnGrace is how long agents take to come back to a broker.
	ReturnGrace time.Duration `yaml:"-"`
	// CanReset says that nodes can be reset from outside.
	CanReset bool `yaml:"-"`
	// ActiveFeatures has slurmctld show the kernel that a node runs.
	ActiveFeatures bool `yaml:"-"`
}

// Defaults returns the configuration of a broker that was told nothing.
func Defaults() Config {
	return Config{
		SwitchLimit:   10 * time.Minute,
		LoadLimit:     2 * time.Minute,
		ResetGrace:    10 * time.Minute,
		AgentLimit:    time.Minute,
		RegisterDelay: 1100 * time.Millisecond,
		RegisterRetry: 3 * time.Second,
		KeepLimit:     30 * time.Second,
		StockTimeout:  5 * time.Minute,
		StockAttempts: 3,
		RebootTimeout: 10 * time.Minute,

		RunDeliverLimit: 10 * time.Minute,
		RunRequestLimit: 30 * 24 * time.Hour,
		RunsOfUser:      100,
	}
}

// Slurmd is an agent's last report on its slurmd.
type Slurmd struct {
	Start   uint64
	Running bool
	// At is when the agent said so last, Since when it first said that this slurmd runs.
	At, Since time.Time
}

// Said returns what is known after one more report: a slurmd that was there before is no newer for it.
func (s Slurmd) Said(start uint64, running bool, now time.Time) Slurmd {
	since := s.Since
	if running && (!s.Running || start != s.Start) {
		since = now
	}
	return Slurmd{Start: start, Running: running, At: now, Since: since}
}

// Agent is what a node's agent has said on its present stream.
type Agent struct {
	Connected bool
	// Since is when the agent connected, or when it was lost.
	Since     time.Time
	Boot      kb.Boot
	Inventory kb.Inventory
	Reports   []kb.SwitchReport
	Slurmd    Slurmd
	// Acknowledged is the generation of the desired state that the node's gate goes by.
	Acknowledged uint64
	// Ending is the job whose epilog waits for an answer; 0 for none.
	Ending      uint32
	EndingSince time.Time
	// Refusals of the gate in the boot that the agent spoke of last, oldest first.
	Refusals []kb.GateRefusal
	// Runs are its reports on profiling runs.
	Runs map[uint64]kb.RunReport
}

// Catalog answers what the plan must know of kernels.
type Catalog interface {
	// Stock is the kernel that a node is brought back to.
	Stock() (kb.Kernel, bool)
	// ByBuildID finds the profile versions that have a build id.
	ByBuildID(buildID string) []kb.Ref
	// Resolve names the version that a reference stands for now, and why it
	// cannot be chosen if it cannot.
	Resolve(ref kb.Ref) (kb.Ref, error)
	// Restricted reports whether there may be somebody who may not use a
	// profile.
	Restricted(profile string) bool
	// FailedOn reports whether failed boots of a version are counted of a node.
	FailedOn(ref kb.Ref, node string) bool
	// Counted reports whether a fault has been counted against its kernel.
	Counted(fault kb.Fault) bool
}

// Input is everything a decision is made of. Records are not changed.
type Input struct {
	Now time.Time
	// Began is when the broker did. What is older counts from then: the clock that
	// dated it may have been set since, and nothing was decided in between.
	Began       time.Time
	Config      Config
	Slurm       kb.SlurmView
	Nodes       map[string]*kb.Node
	Allocations map[kb.JobID]*kb.Allocation
	// Scope is what is decided on, closed (Scope.Close); nil for everything.
	Scope   *Scope
	Agents  map[string]Agent
	Catalog Catalog
	// Runs that are not over, and the number of the next one.
	Runs    map[uint64]*kb.Run
	NextRun uint64
	// Receipts of actions since the last decision that was committed.
	Receipts []Receipt
	// Held are the holds that are to be looked after.
	Held map[kb.JobID]Hold
	// Damaged: the images that the store does not have as they were registered, by
	// digest, with what is wrong.
	Damaged map[string]string
	// Queued runs of jobs wait until fewer switches are under way.
	Queued map[kb.JobID]bool
	// Begun are the boots that slurmctld has begun and the broker did not ask for, by node.
	Begun map[string]kb.BegunBoot
	// FeaturesSet is when slurmctld was last told of features.
	FeaturesSet time.Time
	// Rules on kexec, by name.
	Rules []kb.HardwareRule
	// NewToken returns a fresh one-time token.
	NewToken func() string
}

// Output is what has to become of the records, and what is to be done then.
type Output struct {
	Nodes       []*kb.Node
	Allocations []*kb.Allocation
	Runs        []*kb.Run
	Actions     []Action
	// Awake is what has to be decided on again although nothing is heard of it: with each poll, and each second.
	Awake Scope
	// NextPass is what has to be in the next scope, however soon that is.
	NextPass Scope
	// BootsOver are the nodes whose begun boot need not be on record any more.
	BootsOver []string
	// Tries are the boots that came to an end.
	Tries []kb.Try
	// UsedRules were for one return, which has begun.
	UsedRules []string
	// Held are the holds that are to be looked after further.
	Held map[kb.JobID]Hold
	// Kept answers epilogs that wait: node to whether it is kept. A node that
	// waits and is not in it has to wait on.
	Kept map[string]bool
}
