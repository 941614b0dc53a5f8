// SPDX-License-Identifier: Apache-2.0

// Package collect profiles one job on this node: it checks and starts collectors, publishes figures while the job runs,
// writes the result at its end, and leaves nothing behind.
//
// A job is a cgroup. A collector starts for one cgroup, observes only its tasks, and ends with it. Everything attached
// is held by file descriptors of this process and pinned nowhere, so the kernel detaches it even if the agent is killed.
//
// A collector that cannot work on a kernel reports the reason and a remedy before the job starts, as
// *profiling.Unsupported. The job runs anyway.
//
// Collectors do not know each other. Each is a subpackage; package cmd passes the requested ones to Run.
package collect

import (
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Target is the job to profile.
type Target struct {
	Node   string
	Cgroup *cgroup.Group
	// Began is the begin of the run.
	Began time.Time
	// Folder is for data too large for a result, such as an archive.
	Folder string
}

// Collector observes one aspect of a job.
type Collector interface {
	Name() profiling.Collector
	// Check reports whether the collector works on the running kernel. It attaches nothing; the error is a
	// *profiling.Unsupported.
	Check() error
	// Start starts collecting. Its error is a *profiling.Unsupported too, and nothing is left attached.
	Start(target Target) (Session, error)
}

// Session is a collector at work. Its methods are called one at a time.
type Session interface {
	// Missing are parts that this kernel does not have; the rest works.
	Missing() []bpf.Missing
	// Read adds the data so far to a result. It may be called at any time before Close.
	Read(result *profiling.Result) error
	// Spent is how often the collector's programs ran, and for how long, while
	// the kernel kept count; see Overhead.
	Spent() (bpf.Cost, error)
	// Stop detaches everything; the data stays readable. It is idempotent.
	Stop() error
	// Close stops and releases the rest.
	Close() error
}

// Pauser is a Session that can pause, when the collectors cost the job too much. Its data so far stays, and events that began
// in a pause are not counted. What it costs the kernel's statistics of its programs tell; see Counter.
type Pauser interface {
	// Pause stops observing at once; Detach also detaches what is slow to detach.
	Pause() error
	Detach() error
	Resume() error
}

// Counter is a Pauser that counts what it costs by, so that what pauses hid can be estimated.
type Counter interface {
	Pauser
	// Events counts the events that cost the job time: program runs for the job.
	Events() (uint64, error)
	// Toll is the cost of an event beyond the program.
	Toll() bpf.Toll
}
