package verdict

import (
	"errors"
	"fmt"
	"slices"
)

// ErrTwice is a sample that a set has already.
var ErrTwice = errors.New("measured twice")

// Set of samples, each found by what it measured.
type Set struct{ samples map[key]Sample }

type key struct {
	kernel, metric string
	run            Run
}

// NewSet refuses two samples of the same thing: one would hide the other.
func NewSet(samples []Sample) (*Set, error) {
	set := &Set{samples: map[key]Sample{}}
	for _, s := range samples {
		k := key{s.Kernel, s.Metric, s.Run()}
		if _, ok := set.samples[k]; ok {
			return nil, fmt.Errorf("%s on kernel %q, %s, seed %d, size %d: %w", s.Workload, s.Kernel, s.Metric, s.Seed, s.Size, ErrTwice)
		}
		set.samples[k] = s
	}
	return set, nil
}

// Run that the sample measured.
func (s Sample) Run() Run { return Run{Workload: s.Workload, Seed: s.Seed, Size: s.Size} }

// Get a sample.
func (s *Set) Get(kernel, metric string, run Run) (Sample, bool) {
	sample, ok := s.samples[key{kernel, metric, run}]
	return sample, ok
}

// Runs that were measured in a metric on any kernel, sorted.
func (s *Set) Runs(metric string) []Run {
	var runs []Run
	for k := range s.samples {
		if k.metric == metric {
			runs = append(runs, k.run)
		}
	}
	slices.SortFunc(runs, compareRuns)
	return slices.Compact(runs)
}

// Metrics that the set has, in no order of value but sorted.
func (s *Set) Metrics() []string {
	var metrics []string
	for k := range s.samples {
		metrics = append(metrics, k.metric)
	}
	slices.Sort(metrics)
	return slices.Compact(metrics)
}
