// SPDX-License-Identifier: Apache-2.0

// Package compare sets two sides of profiling runs beside each other, for
// example one job on two kernels, and says which differences mean something.
//
// The idea: a side is one run or several of the same job. Every figure of a run
// is one value, and a figure of two sides differs only if Welch's test says so,
// as in the kernel factory. Where a side has too few runs for a test, that is
// said instead: two runs always differ, and one difference has no significance.
package compare

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Standing of side B to side A in one figure.
type Standing string

// The standings.
const (
	Less  Standing = "less"
	More  Standing = "more"
	Equal Standing = "equal"
	// Unclear: the difference may be chance.
	Unclear Standing = "unclear"
	// Untested: too few runs to say.
	Untested Standing = "untested"
)

// Side is what is compared: runs of one job, merged over their nodes each.
type Side struct {
	Name string
	Runs []profiling.Result
}

// Comparison of two sides.
type Comparison struct {
	A string `json:"a"`
	B string `json:"b"`
	// Significance says what the standings rest on.
	Significance string `json:"significance"`
	Rows         []Row  `json:"rows"`
	// Unequal says in what the sides are not runs of the same thing.
	Unequal []string `json:"unequal"`
}

// Row is one figure on both sides. A side without the figure has no summary.
type Row struct {
	Group  string         `json:"group"`
	Name   string         `json:"name"`
	Unit   string         `json:"unit"`
	A      *stats.Summary `json:"a"`
	B      *stats.Summary `json:"b"`
	Change *float64       `json:"change"`
	// P of Welch's test, where there was one.
	P        *float64 `json:"p"`
	Standing Standing `json:"standing"`
}

// As in the factory's verdicts: a t-test at 0.05, of three values on each side.
const (
	level     = 0.05
	leastRuns = 3
)

// ErrNothing is a side without runs.
var ErrNothing = errors.New("no runs to compare")

// Compare sets B beside A.
func Compare(a, b Side) (Comparison, error) {
	c := Comparison{A: a.Name, B: b.Name, Rows: []Row{}, Unequal: unequal(a, b)}
	for _, s := range []Side{a, b} {
		if len(s.Runs) == 0 {
			return c, fmt.Errorf("%s: %w", s.Name, ErrNothing)
		}
	}
	c.Significance = significance(len(a.Runs), len(b.Runs))
	tested := len(a.Runs) >= leastRuns && len(b.Runs) >= leastRuns
	valuesA, order := values(a.Runs, nil)
	valuesB, order := values(b.Runs, order)
	for _, f := range order {
		row := Row{Group: f.group, Name: f.name, Unit: f.unit, Standing: Untested}
		var err error
		if row.A, err = summary(valuesA[f], len(a.Runs)); err != nil {
			return c, fmt.Errorf("%s: %s: %w", a.Name, f.name, err)
		}
		if row.B, err = summary(valuesB[f], len(b.Runs)); err != nil {
			return c, fmt.Errorf("%s: %s: %w", b.Name, f.name, err)
		}
		row.judge(tested)
		c.Rows = append(c.Rows, row)
	}
	return c, nil
}

func significance(a, b int) string {
	switch {
	case a == 1 && b == 1:
		return "One run each: no significance can be stated."
	case a < leastRuns || b < leastRuns:
		return fmt.Sprintf("%d and %d runs: no significance can be stated with fewer than %d on each side.", a, b, leastRuns)
	default:
		return fmt.Sprintf("%d and %d runs: a figure differs if Welch's test gives p below %v. Of a hundred figures that do not differ "+
			"about %.0f look as if they did.", a, b, level, 100*level)
	}
}

// summary is nil for a figure that not every run of the side has.
func summary(values []float64, runs int) (*stats.Summary, error) {
	if len(values) < runs {
		return nil, nil
	}
	s, err := stats.Summarise(values)
	return &s, err
}

func (r *Row) judge(tested bool) {
	if r.A == nil || r.B == nil {
		return
	}
	if r.A.Median > 0 {
		r.Change = new(r.B.Median/r.A.Median - 1)
	}
	if !tested {
		return
	}
	test := stats.Welch(*r.B, *r.A)
	r.P = &test.P
	switch {
	case r.A.Mean == r.B.Mean:
		r.Standing = Equal
	case !(test.P < level):
		r.Standing = Unclear
	case r.B.Mean < r.A.Mean:
		r.Standing = Less
	default:
		r.Standing = More
	}
}

// unequal says what makes the sides runs of different things.
func unequal(a, b Side) []string {
	out := []string{}
	for _, s := range []Side{a, b} {
		for i, r := range s.Runs {
			if len(r.Partial) > 0 {
				out = append(out, fmt.Sprintf("a run of %s (its number %d) is partial: %s", s.Name, i+1, r.Partial[0].Why))
			}
			for _, c := range r.Estimated() {
				out = append(out, fmt.Sprintf("in a run of %s (its number %d) %s observed a part of the time: its counts are estimates", s.Name, i+1, c.Collector))
			}
			if first := s.Runs[0]; nodes(r) != nodes(first) || kernelOf(r) != kernelOf(first) {
				out = append(out, fmt.Sprintf("the runs of %s are not alike: %s, and %s", s.Name, describe(first), describe(r)))
			}
		}
	}
	if len(a.Runs) > 0 && len(b.Runs) > 0 && nodes(a.Runs[0]) != nodes(b.Runs[0]) {
		out = append(out, fmt.Sprintf("%s ran on %d nodes, %s on %d", a.Name, nodes(a.Runs[0]), b.Name, nodes(b.Runs[0])))
	}
	return out
}

func describe(r profiling.Result) string {
	return fmt.Sprintf("%d nodes on %s", nodes(r), kernelOf(r))
}

func nodes(r profiling.Result) int { return len(r.NodeNames()) }

// kernelOf a run, of all its nodes if they differ.
func kernelOf(r profiling.Result) string {
	var all []string
	for _, n := range r.Nodes {
		all = append(all, build(n.Kernel))
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return "an unknown kernel"
	}
	return strings.Join(all, " and ")
}

// build tells kernels of one release apart, such as two versions of a profile.
func build(k profiling.Kernel) string {
	const enough = 12
	if k.BuildID == "" {
		return k.Release
	}
	return fmt.Sprintf("%s (build %s)", k.Release, k.BuildID[:min(enough, len(k.BuildID))])
}

// figure names one value of a run.
type figure struct{ group, name, unit string }

// Units.
const (
	unitSeconds = "s"
	unitShare   = "share"
	unitCount   = "count"
	unitBytes   = "B"
)

// values gathers each figure over the runs; order lists the figures as they
// first came, after those given.
func values(runs []profiling.Result, order []figure) (map[figure][]float64, []figure) {
	all := map[figure][]float64{}
	for _, r := range runs {
		figures(r, func(f figure, v float64) {
			if !slices.Contains(order, f) {
				order = append(order, f)
			}
			all[f] = append(all[f], v)
		})
	}
	return all, order
}

const nanosecond = float64(time.Nanosecond) / float64(time.Second)

// figures adds every value of a run.
func figures(r profiling.Result, add func(figure, float64)) {
	job(r, add)
	if r.Noise != nil {
		add(figure{"noise", "taken by others", unitShare}, 1-r.Noise.Left())
		if _, worst, ok := r.Noise.Worst(); ok {
			add(figure{"noise", "worst event", unitSeconds}, float64(worst.MostNS)*nanosecond)
		}
	}
	if r.IO != nil {
		files := r.IO.Total(profiling.RegularFiles)
		add(figure{"io", "reads", unitCount}, float64(files.Read.Calls))
		add(figure{"io", "bytes read", unitBytes}, float64(files.Read.Bytes))
		add(figure{"io", "writes", unitCount}, float64(files.Write.Calls))
		add(figure{"io", "bytes written", unitBytes}, float64(files.Write.Bytes))
	}
	if r.Syscalls != nil {
		for _, c := range r.Syscalls.Calls {
			add(figure{"system calls", c.Name + ": calls", unitCount}, float64(c.Count))
			add(figure{"system calls", c.Name + ": time", unitSeconds}, float64(c.NS)*nanosecond)
			if c.Count > 0 {
				add(figure{"system calls", c.Name + ": each", unitSeconds}, float64(c.NS)*nanosecond/float64(c.Count))
			}
		}
	}
}

func job(r profiling.Result, add func(figure, float64)) {
	var all, user, system uint64
	var wall time.Duration
	observed := map[string]time.Duration{} // of all parts of a node
	for _, n := range r.Nodes {
		all, user, system = all+n.JobNS, user+n.UserNS, system+n.SystemNS
		observed[n.Name] += max(0, n.End.Sub(n.Begin))
		wall = max(wall, observed[n.Name])
	}
	add(figure{"job", "observed", unitSeconds}, wall.Seconds())
	add(figure{"job", "CPU time", unitSeconds}, float64(all)*nanosecond)
	add(figure{"job", "in the program", unitSeconds}, float64(user)*nanosecond)
	add(figure{"job", "in the kernel", unitSeconds}, float64(system)*nanosecond)
	if share, known := r.KernelShare(); known {
		add(figure{"job", "share of the kernel", unitShare}, share)
	}
}
