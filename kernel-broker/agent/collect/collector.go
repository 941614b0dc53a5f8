// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Target is the job that is looked at.
type Target struct {
	Node   string
	Cgroup *cgroup.Group
	// Folder takes what is too large for a result, such as an archive.
	Folder string
}

// Collector is one way of looking.
type Collector interface {
	Name() profiling.Collector
	// Check tells whether it can work on the running kernel. It attaches
	// nothing; the error is a *profiling.Unsupported.
	Check() error
	// Start begins to look. What fails now is a *profiling.Unsupported as well,
	// and leaves nothing attached.
	Start(target Target) (Session, error)
}

// Session is a collector at work. Its methods are called one at a time.
type Session interface {
	// Missing are parts that this kernel does not have; the rest works.
	Missing() []Missing
	// Read adds what was found until now to a result. It may be called at any
	// time before Close.
	Read(result *profiling.Result) error
	// Spent is how often the collector's programs ran, and for how long, while
	// the kernel kept count; see Overhead.
	Spent() (Cost, error)
	// Stop detaches everything; what was found stays readable. Twice is as
	// good as once.
	Stop() error
	// Close stops, and gives back what Stop left.
	Close() error
}

// Pauser is a Session that can look away for a while. What it found before
// stays, and the look after it does not see what began in between.
type Pauser interface {
	// Events counts what cost the job time: its programs' runs for the job.
	Events() (uint64, error)
	// Toll is what an event costs beside the program.
	Toll() bpf.Toll
	// Pause ends the look at once, Detach takes its time to detach what is slow
	// to detach.
	Pause() error
	Detach() error
	Resume() error
}

// Missing is a part of a collector that cannot work.
type Missing struct {
	Part string
	Why  *profiling.Unsupported
}

// Cost of programs.
type Cost struct {
	Runs uint64
	NS   uint64
}
