// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

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

// Run that the sample measured.
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
