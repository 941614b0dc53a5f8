// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Collector is one way of looking at a job.
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
)

// Collectors lists all of them, in the order of reports.
func Collectors() []Collector {
	return []Collector{CollectIO, CollectSyscalls, CollectCallgraph, CollectNoise, CollectPGO}
}

// DefaultCollectors are cheap and say most.
func DefaultCollectors() []Collector {
	return []Collector{CollectIO, CollectSyscalls, CollectNoise}
}

// ErrCollector is a name that is no collector's.
var ErrCollector = errors.New("no such collector")

// ParseCollectors reads a list such as "io,syscalls". An empty text and
// "default" are the default set, "all" is all. The order is that of reports.
func ParseCollectors(text string) ([]Collector, error) {
	switch strings.TrimSpace(text) {
	case "", "default":
		return DefaultCollectors(), nil
	case "all":
		return Collectors(), nil
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
