// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
)

// Sample is one thing measured on one kernel, once or several times, with
// every value per operation of the workload unless its unit says otherwise.
type Sample struct {
	// Workload is the name of the workload in the catalog.
	Workload string `json:"workload"`
	// Part of a workload that counts several things apart, such as one system
	// call of many; empty where the workload is one thing.
	Part string `json:"part,omitempty"`
	// Metric is one of this package's Metric names.
	Metric string `json:"metric"`
	// Unit of each value, such as "instructions/operation".
	Unit string `json:"unit"`
	// Kernel is the name under which the kernel takes part in the comparison.
	Kernel string `json:"kernel"`
	// Exact says that the method repeats exactly: a difference is then a
	// difference, however small, and needs no test for significance.
	Exact bool `json:"exact"`
	// HostClock says that the guest's clock was the host's, whose load is then in the counts:
	// a busy host has more timer ticks in the same work.
	HostClock bool `json:"host_clock,omitempty"`
	// Values has one value per repetition.
	Values []float64 `json:"values"`
	// Size of the run, in the workload's own terms (operations asked for,
	// records, requests).
	Size int64 `json:"size"`
	// Seed of the run's data.
	Seed int64 `json:"seed"`
	// Operations that each repetition did between its markers.
	Operations int64 `json:"operations"`
}

// PerOperation says whether figures of the unit are of one operation; they are of
// the whole run otherwise.
func PerOperation(unit string) bool { return strings.HasSuffix(unit, "/operation") }

func (s Sample) Summary() (stats.Summary, error) { return stats.Summarise(s.Values) }

// The metrics that the bench takes. Of all that a kernel is measured by, only
// KernelWeighed and WallTime decide.
const (
	// KernelWeighed and UserWeighed are instructions, with string instructions by
	// their Weigh.
	KernelWeighed      = "kernel_weighed_instructions"
	UserWeighed        = "user_weighed_instructions"
	KernelInstructions = "kernel_instructions"
	UserInstructions   = "user_instructions"
	// Strings is how often a repeating string instruction begins.
	Strings        = "kernel_strings"
	StringBytes    = "kernel_string_bytes"
	TakenBranches  = "kernel_taken_branches"
	Mispredictions = "kernel_mispredictions"
	L1IMisses      = "kernel_l1i_misses"
	ITLBMisses     = "kernel_itlb_misses"
	L1DMisses      = "kernel_l1d_misses"
	DTLBMisses     = "kernel_dtlb_misses"
	// TextLines and TextPages are the cache lines and pages of kernel code of
	// which anything ran, in the whole run.
	TextLines = "kernel_text_lines"
	TextPages = "kernel_text_pages"
	WallTime  = "wall_time"
	// EmulatedTime is wall time of an emulator: what it takes for an
	// instruction is not what a processor takes.
	EmulatedTime = "emulated_time"
)

// What a repeating string instruction costs, in instructions of one cycle each:
// docs/kernel-report.md has the sources. It depends on bytes and not on
// iterations, so that the width of its elements neither wins nor loses.
const (
	StringBegin               = 30
	StringBytesPerInstruction = 32
)

// Weigh the strings that begin among instructions, each of which counts as one
// there, and the bytes of all of them.
func Weigh(instructions, strings, bytes uint64) float64 {
	return float64(instructions) + StringBegin*float64(strings) + float64(bytes)/StringBytesPerInstruction
}

// ErrTwice is a sample that a set has already.
var ErrTwice = errors.New("measured twice")

// Set of samples, each found by what it measured.
type Set struct{ samples map[key]Sample }

type key struct {
	kernel, metric, part string
	run                  Run
}

// NewSet refuses two samples of the same thing: one would hide the other.
func NewSet(samples []Sample) (*Set, error) {
	set := &Set{samples: map[key]Sample{}}
	for _, s := range samples {
		k := key{s.Kernel, s.Metric, s.Part, s.Run()}
		if _, ok := set.samples[k]; ok {
			return nil, fmt.Errorf("%s on kernel %q, %s, seed %d, size %d: %w", named(s.Workload, s.Part), s.Kernel, s.Metric, s.Seed, s.Size, ErrTwice)
		}
		set.samples[k] = s
	}
	return set, nil
}

func (s Sample) Run() Run { return Run{Workload: s.Workload, Seed: s.Seed, Size: s.Size} }

// Get the sample of a part of a run.
func (s *Set) Get(kernel, metric string, run Run, part string) (Sample, bool) {
	sample, ok := s.samples[key{kernel, metric, part, run}]
	return sample, ok
}

// of are the values of those keys for which there is one, sorted.
func of[T comparable](s *Set, compare func(a, b T) int, value func(key) (T, bool)) []T {
	var all []T
	for k := range s.samples {
		if v, ok := value(k); ok {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

// Parts of a run that were measured in a metric on any kernel, sorted.
func (s *Set) Parts(metric string, run Run) []string {
	return of(s, strings.Compare, func(k key) (string, bool) { return k.part, k.metric == metric && k.run == run })
}

// Runs that were measured in a metric on any kernel, sorted.
func (s *Set) Runs(metric string) []Run {
	return of(s, compareRuns, func(k key) (Run, bool) { return k.run, k.metric == metric })
}

// Metrics that the set has, in no order of value but sorted.
func (s *Set) Metrics() []string {
	return of(s, strings.Compare, func(k key) (string, bool) { return k.metric, true })
}

// Instructions are the metrics by which instructions count, those of the kernel and the
// program's own: in facts of before strings were weighed the plain ones, so that such
// facts give the verdict that they gave.
func (s *Set) Instructions() (kernel, user string) {
	metrics := s.Metrics()
	if slices.Contains(metrics, KernelInstructions) && !slices.Contains(metrics, KernelWeighed) {
		return KernelInstructions, UserInstructions
	}
	return KernelWeighed, UserWeighed
}

// All samples of a run on a kernel, by part; nil unless each part is there that
// was measured on any kernel.
func (s *Set) All(kernel Kernel, metric string, run Run) []Side {
	var sides []Side
	for _, part := range s.Parts(metric, run) {
		sample, ok := s.Get(kernel.Name, metric, run, part)
		if !ok {
			return nil
		}
		sides = append(sides, Side{kernel, sample})
	}
	return sides
}

// named is a workload with the part of it.
func named(workload, part string) string {
	if part == "" {
		return workload
	}
	return workload + ": " + part
}

func compareRuns(a, b Run) int {
	return cmp.Or(strings.Compare(a.Workload, b.Workload), cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Size, b.Size))
}
