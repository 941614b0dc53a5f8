// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// Collector is one way of observing a job.
type Collector string

// The collectors.
const (
	CollectIO        Collector = "io"
	CollectSyscalls  Collector = "syscalls"
	CollectCallgraph Collector = "callgraph"
	CollectNoise     Collector = "noise"
	// CollectPGO takes the counters of an instrumented kernel; it alone needs
	// a kernel of its own.
	CollectPGO Collector = "pgo"
	// CollectCallCounts slows the job down many times, and what the others
	// measure of it.
	CollectCallCounts Collector = "callcounts"
)

// Collectors lists all of them, in the order of reports.
func Collectors() []Collector {
	return append(together(), CollectCallCounts)
}

// together are those that can observe one job side by side.
func together() []Collector {
	return []Collector{CollectIO, CollectSyscalls, CollectCallgraph, CollectNoise, CollectPGO}
}

// DefaultCollectors are cheap and say most.
func DefaultCollectors() []Collector {
	return []Collector{CollectIO, CollectSyscalls, CollectNoise}
}

// ErrCollector is a name that is no collector's.
var ErrCollector = errors.New("no such collector")

// ParseCollectors reads a list such as "io,syscalls". An empty text and
// "default" are the default set, "all" is all but callcounts. The order is that
// of reports.
func ParseCollectors(text string) ([]Collector, error) {
	switch strings.TrimSpace(text) {
	case "", "default":
		return DefaultCollectors(), nil
	case "all":
		return together(), nil
	}
	wanted := map[Collector]bool{}
	for name := range strings.SplitSeq(text, ",") {
		c := Collector(strings.TrimSpace(name))
		if !slices.Contains(Collectors(), c) {
			return nil, fmt.Errorf("collector %q: %w, there are %s", name, ErrCollector, names())
		}
		wanted[c] = true
	}
	var found []Collector
	for _, c := range Collectors() {
		if wanted[c] {
			found = append(found, c)
		}
	}
	return found, nil
}

func names() string {
	var all []string
	for _, c := range Collectors() {
		all = append(all, string(c))
	}
	return strings.Join(all, ", ")
}

// Reason says why a collector cannot work, for programs.
type Reason string

// The reasons.
const (
	NoRights     Reason = "no-rights"
	NoPrograms   Reason = "no-programs"
	NoBTF        Reason = "no-btf"
	NoBPF        Reason = "no-bpf"
	NoTracepoint Reason = "no-tracepoint"
	NoFunction   Reason = "no-function"
	NoCgroup2    Reason = "no-cgroup2"
	NoPerfEvents Reason = "no-perf-events"
	NoSymbols    Reason = "no-symbols"
	NoTracer     Reason = "no-tracer"
	NoCounters   Reason = "no-counters"
	LockedDown   Reason = "locked-down"
	BrokenStart  Reason = "start-failed"
)

// Unsupported says that a collector, or a part of one, cannot work on this
// kernel, why, and what an administrator can do.
type Unsupported struct {
	Collector Collector `json:"collector"`
	Reason    Reason    `json:"reason"`
	Detail    string    `json:"detail"`
	Remedy    string    `json:"remedy"`
}

func (u *Unsupported) Error() string {
	text := fmt.Sprintf("collector %q: %s", u.Collector, u.Detail)
	if u.Remedy != "" {
		text += "; " + u.Remedy
	}
	return text
}

// Coverage says how much of a job a collector observed. One that costs the
// job more than the site allows pauses now and then; its counts are
// estimates then, and say so here.
type Coverage struct {
	Node      string    `json:"node"`
	Collector Collector `json:"collector"`
	// Exact: it observed all the time, and what is counted is what happened.
	Exact bool `json:"exact"`
	// BudgetPPM is the share of the job's CPU time that all collectors on the
	// node may take, in millionths; 0 is no bound.
	BudgetPPM uint64 `json:"budget_ppm" sum:"max"`
	// SpanNS is the time from the collector's begin to its end, ObservedNS the part
	// in which it observed, in Pauses and one pieces.
	SpanNS     uint64 `json:"span_ns"`
	ObservedNS uint64 `json:"looked_ns"`
	Pauses     uint64 `json:"pauses"`
	// JobNS is the CPU time that the job used in the span, ObservedJobNS the part
	// in which it was observed.
	JobNS         uint64 `json:"job_ns"`
	ObservedJobNS uint64 `json:"looked_job_ns"`
	// Events that were seen, and how many there were by the estimate: a pause
	// had as many, for the CPU time that the job had to itself, as the moments
	// before it. What is scaled is multiplied by the second over the first.
	Events    uint64 `json:"events"`
	Estimated uint64 `json:"estimated"`
	// CostNS is what the collector cost over the span, with the kernel's way to
	// its programs.
	CostNS uint64 `json:"cost_ns"`
	// Scaled figures are estimates for the whole span, AsSeen ones are as they
	// were seen: there was at least so much. Both are empty if it is exact.
	Scaled []string `json:"scaled"`
	AsSeen []string `json:"as_seen"`
}

// Share of the time in which the collector observed.
func (c Coverage) Share() float64 {
	if c.SpanNS == 0 {
		return 1
	}
	return float64(c.ObservedNS) / float64(c.SpanNS)
}

// Factor that counts are scaled by.
func (c Coverage) Factor() float64 {
	if c.Exact || c.Events == 0 {
		return 1
	}
	return max(1, float64(c.Estimated)/float64(c.Events))
}

// Covered is what a collector covered on all nodes together; known is false
// without any word of it.
func (r *Result) Covered(name Collector) (all Coverage, known bool) {
	all = Coverage{Collector: name, Exact: true}
	for _, c := range r.Coverage {
		if c.Collector != name {
			continue
		}
		known = true
		exact := all.Exact && c.Exact
		all = addup.Plus(all, c)
		all.Exact, all.Node = exact, ""
		if !c.Exact {
			all.Scaled, all.AsSeen = c.Scaled, c.AsSeen
		}
	}
	return all, known
}

// Estimated returns what each collector whose figures are estimates covered, on
// all nodes together.
func (r *Result) Estimated() []Coverage {
	var all []Coverage
	for _, name := range Collectors() {
		if c, _ := r.Covered(name); !c.Exact {
			all = append(all, c)
		}
	}
	return all
}

// Cover adds the coverage of one collector, and scales what the collector found
// if it did not observe all the time.
func (r *Result) Cover(c Coverage) {
	if !c.Exact {
		switch c.Collector {
		case CollectIO:
			c.Scaled = []string{"calls", "bytes", "opens", "seeks", "syncs", "mappings"}
			c.AsSeen = []string{"files and their number", "sizes of files", "least and most bytes of a call"}
			if r.IO != nil {
				r.IO = addup.Scaled(r.IO, c.Factor())
			}
		case CollectSyscalls:
			c.Scaled = []string{"calls", "failed calls", "time and its parts"}
			c.AsSeen = []string{"processes", "the longest call", "the slowest calls"}
			if r.Syscalls != nil {
				r.Syscalls = r.Syscalls.scaled(c.Factor())
			}
		case CollectCallgraph:
			c.AsSeen = []string{"samples"}
		case CollectNoise:
			c.AsSeen = []string{"times", "events", "the worst event"}
		case CollectPGO, CollectCallCounts:
			// They never pause.
		}
	}
	r.Coverage = append(r.Coverage, c)
}

// scaled keeps what holds of all results: the parts add up to the whole, and
// the histogram to the calls.
func (c Syscall) scaled(factor float64) Syscall {
	out := addup.Scaled(c, factor)
	if c.Times.Count() == c.Count {
		out.Count = out.Times.Count()
	}
	if len(c.Split) > 0 {
		out.NS = 0
		for _, part := range out.Split {
			out.NS += part.NS
		}
	}
	return out
}

func (s *Syscalls) scaled(factor float64) *Syscalls {
	all := *s
	all.Calls = nil
	all = addup.Scaled(all, factor)
	for _, c := range s.Calls {
		all.Calls = append(all.Calls, c.scaled(factor))
	}
	all.Sort()
	return &all
}
