// SPDX-License-Identifier: Apache-2.0

// Package profiling is what a profiling run says: which collectors there are,
// what each found on a node, and how the words of several nodes become one.
//
// The idea: results are plain data that add up. Every figure is a count, a sum
// of nanoseconds or bytes, a histogram of powers of two, or the largest of its
// kind, so that merging is addition, in any order, and nothing that one node
// knew is lost by it. Shares, quantiles and means are worked out by whoever
// reads. A result that is not whole says so by itself: what was refused, what
// broke off, what found no room, and what the measuring cost.
//
// The package imports the standard library only. schema/run.schema.json
// describes the JSON; a test holds it and these types together.
package profiling

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// Format is the version of the results' JSON.
const Format = 1

// ErrFormat is a result of another format.
var ErrFormat = errors.New("format of the profiling result is not known")

// Kernel that the job ran on.
type Kernel struct {
	Release string `json:"release"`
	BuildID string `json:"build_id"`
	// Lacks has what the kernel was built without of the symbols that keep
	// disturbances from a job's CPUs; absent if unknown.
	Lacks []string `json:"lacks,omitzero"`
}

// Partial says that a result is not whole. Collector is empty if that goes for
// all of them.
type Partial struct {
	Node      string    `json:"node"`
	Collector Collector `json:"collector"`
	// Why: "agent stopped", "disk full", ...
	Why string `json:"why"`
}

// Refusal is a collector, or a part of one, that could not work on a node.
type Refusal struct {
	Node string `json:"node"`
	Unsupported
	// Part is empty if the whole collector could not; else the rest worked.
	Part string `json:"part"`
}

// Overhead is what a collector cost. Its programs' time is measured during
// windows spread over the time in which it observed, since measuring it costs
// time as well.
type Overhead struct {
	Node      string    `json:"node"`
	Collector Collector `json:"collector"`
	// WindowNS is the length of all windows together, JobNS the CPU time that
	// the job used in them.
	WindowNS uint64 `json:"window_ns"`
	JobNS    uint64 `json:"job_ns"`
	// Events and SpentNS are how often the collector's programs ran in the
	// windows, for the job or not, and for how long.
	Events  uint64 `json:"events"`
	SpentNS uint64 `json:"spent_ns"`
}

// Share of the job's CPU time; 0 if the job used none.
func (o Overhead) Share() float64 {
	if o.JobNS == 0 {
		return 0
	}
	return float64(o.SpentNS) / float64(o.JobNS)
}

// PGO says where the counters of an instrumented kernel are.
type PGO struct {
	Archives []Archive `json:"archives"`
}

// Archive is one node's counters, a compressed tar of .gcda files beside the
// result.
type Archive struct {
	Node    string `json:"node"`
	BuildID string `json:"build_id"`
	Name    string `json:"name"`
	Files   uint64 `json:"files"`
	Bytes   uint64 `json:"bytes"`
}

// Node is one node's part in a run.
type Node struct {
	Name   string    `json:"name"`
	Kernel Kernel    `json:"kernel"`
	CPUs   int       `json:"cpus"`
	Begin  time.Time `json:"begin"`
	End    time.Time `json:"end"`
	// JobNS is the CPU time that the job used, UserNS and SystemNS its parts.
	JobNS    uint64 `json:"job_ns"`
	UserNS   uint64 `json:"user_ns"`
	SystemNS uint64 `json:"system_ns"`
}

// Result is what the collectors found, on one node or on all of a run's. A
// collector that was not asked for, or could not work, is absent.
type Result struct {
	Format     int         `json:"format"`
	Job        uint32      `json:"job" sum:"-"`
	Restart    uint32      `json:"restart" sum:"-"`
	Collectors []Collector `json:"collectors"`
	Nodes      []Node      `json:"nodes"`
	Partial    []Partial   `json:"partial"`
	Refused    []Refusal   `json:"refused"`
	Overhead   []Overhead  `json:"overhead"`
	Coverage   []Coverage  `json:"coverage"`
	IO         *IO         `json:"io,omitempty"`
	Syscalls   *Syscalls   `json:"syscalls,omitempty"`
	CallGraph  *CallGraph  `json:"callgraph,omitempty"`
	Noise      *Noise      `json:"noise,omitempty"`
	PGO        *PGO        `json:"pgo,omitempty"`
	CallCounts *CallCounts `json:"callcounts,omitempty"`
}

// ErrOtherJob is a result that belongs to another job.
var ErrOtherJob = errors.New("result of another job")

// Merge adds up the results of a job's nodes, in any order. With none it is
// the zero value. Patterns that several nodes have lose their advice, which
// rests on the sums: patterns.Advise derives it again.
func Merge(results ...Result) (Result, error) {
	if len(results) == 0 {
		return Result{}, nil
	}
	sum := Result{Format: Format, Job: results[0].Job, Restart: results[0].Restart}
	for _, r := range results {
		if r.Format != Format {
			return Result{}, fmt.Errorf("format %d: %w", r.Format, ErrFormat)
		}
		if r.Job != sum.Job || r.Restart != sum.Restart {
			return Result{}, fmt.Errorf("job %d restart %d beside job %d restart %d: %w",
				r.Job, r.Restart, sum.Job, sum.Restart, ErrOtherJob)
		}
		collectors := slices.Concat(sum.Collectors, r.Collectors)
		sum = addup.Plus(sum, r)
		sum.Collectors = collectors
	}
	sum.sort()
	sum.Collectors = slices.Compact(sum.Collectors)
	return sum, nil
}

func (r *Result) sort() {
	order := Collectors()
	slices.SortFunc(r.Collectors, func(a, b Collector) int {
		return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
	})
	slices.SortFunc(r.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Begin.Compare(b.Begin))
	})
	slices.SortFunc(r.Partial, func(a, b Partial) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Collector, b.Collector), cmp.Compare(a.Why, b.Why))
	})
	slices.SortFunc(r.Refused, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Collector, b.Collector),
			cmp.Compare(a.Part, b.Part), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
	})
	slices.SortFunc(r.Overhead, func(a, b Overhead) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Collector, b.Collector), cmp.Compare(a.SpentNS, b.SpentNS))
	})
	slices.SortFunc(r.Coverage, func(a, b Coverage) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Collector, b.Collector), cmp.Compare(a.SpanNS, b.SpanNS), cmp.Compare(a.Events, b.Events))
	})
	if r.PGO != nil {
		slices.SortFunc(r.PGO.Archives, func(a, b Archive) int {
			return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name))
		})
	}
}

// NodeNames are the run's nodes, each once: one whose agent was restarted, or whose
// job had pauses between its steps, has several parts.
func (r *Result) NodeNames() []string {
	var names []string
	for _, n := range r.Nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// KernelShare is the part of the job's CPU time that the kernel had, of all
// nodes together; ok is false if the job used none.
func (r *Result) KernelShare() (share float64, ok bool) {
	var system, all uint64
	for _, n := range r.Nodes {
		system += n.SystemNS
		all += n.JobNS
	}
	if all == 0 {
		return 0, false
	}
	return float64(system) / float64(all), true
}

// Live is one line of figures while a job runs. Lists in the result are cut.
type Live struct {
	Format int       `json:"format"`
	At     time.Time `json:"at"`
	// Ended is true in the last line.
	Ended  bool   `json:"ended"`
	Result Result `json:"result"`
}

// JSON of a result, indented.
func (r Result) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("profiling result: %w", err)
	}
	return append(content, '\n'), nil
}

// ParseResult reads what JSON writes. Names that are not known are left alone:
// a later version of the same format may have more.
func ParseResult(content []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(content, &r); err != nil {
		return Result{}, fmt.Errorf("profiling result: %w", err)
	}
	if r.Format != Format {
		return Result{}, fmt.Errorf("profiling result: format %d: %w", r.Format, ErrFormat)
	}
	return r, nil
}
