package broker

import (
	"log/slog"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/store"
)

// Options of a controller.
type Options struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Slurm   Slurm
	// Reset resets a node from outside; nil where nothing can.
	Reset Resetter
	Plan  plan.Config
	// PollBusy and PollIdle are the pauses between looks at slurmctld while
	// something is under way and while nothing is.
	PollBusy, PollIdle time.Duration
	// QuarantineAfter is how many failed boots put a kernel into quarantine.
	QuarantineAfter uint32
	// KeepJobs is how many ended jobs are remembered.
	KeepJobs int
	Log      *slog.Logger
}
