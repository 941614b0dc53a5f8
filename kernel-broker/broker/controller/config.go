// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Options of a controller.
type Options struct {
	Store store.Store
	// History gets an event for each change of a record; nil: none are kept.
	History *history.Journal
	Catalog *catalog.Catalog
	Slurm   Slurm
	// Clock that the looks of Slurm are dated by, too; nil: a new one.
	Clock *Clock
	// Reset resets a node from outside; nil where nothing can.
	Reset Resetter
	Plan  plan.Config
	// Authorize says whether a job, as slurmctld knows it, may use a profile. Its
	// error is kernelbroker.ErrDenied for one that may not, which is held, and
	// kernelbroker.ErrUnavailable while nobody can say. Nil: every job may.
	Authorize func(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error
	// AuthorizeProfiling says likewise whether a job may be profiled on a profile's kernel. Nil: every job may.
	AuthorizeProfiling func(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error
	// PollBusy and PollIdle are the pauses between looks at slurmctld while
	// something is under way and while nothing is.
	PollBusy, PollIdle time.Duration
	// QuarantineAfter is how many failed boots put a kernel into quarantine.
	QuarantineAfter uint32
	// ReturnRuleAfter is how many returns by kexec fail in a row before nodes of that hardware reboot instead; 0: never.
	ReturnRuleAfter uint32
	// KeepJobs is how many ended jobs are remembered.
	KeepJobs int
	// KeepJobBytes is how much of the store all jobs may take; the oldest ended ones make room. 0: no limit.
	KeepJobBytes int64
	// Switches is how many jobs' nodes may be on their way to a kernel at the
	// same time; 0 is no limit.
	Switches int
	// Heartbeats is how many all agents together send in a second; 0: DefaultHeartbeats.
	Heartbeats float64
	Runs       RunLimits
	// HasArtifact reports whether a file is stored.
	HasArtifact func(digest string, size uint64) (bool, error)
	// RunRoom is how many bytes of the store of artifacts runs may have; nil: any number. KeepRunBytes is the same as far as
	// it is configured; 0: no limit.
	RunRoom      func() (uint64, error)
	KeepRunBytes int64
	// ReleaseArtifact says that a file is not about to be needed again; nil: nobody is told.
	ReleaseArtifact func(digest string) error
	// CheckArtifact reads a stored file again: kernelbroker.ErrInvalid when it is
	// not what its digest says, kernelbroker.ErrNotFound when there is none.
	CheckArtifact func(ctx context.Context, digest string) error
	// MayAct says why this broker may neither decide nor tell agents anything now; nil: it always may.
	MayAct func() error
	// Passed and Polled are told how long a pass and a look at slurmctld took; nil: nobody counts.
	Passed, Polled func(took time.Duration, err error)
	// Switched is told of each job that has its kernel or is not to get it; nil: nobody asks.
	Switched func(a *kb.Allocation)
	// Alive is called before each pass, and shows that passes go on; nil: nobody asks.
	Alive func()
	Log   *slog.Logger
}
