// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
)

// Standing is how one kernel stands to another in one measured thing. What is
// measured is always a cost per operation, so that less is better.
type Standing string

// The standings.
const (
	// Better: the difference is larger than the spread, and significant
	// where measuring is not exact.
	Better Standing = "better"
	// Worse is Better with the two kernels the other way round.
	Worse Standing = "worse"
	// Equal: exact samples of one value.
	Equal Standing = "equal"
	// Unclear: the difference may be chance.
	Unclear Standing = "unclear"
	// Incomparable: the two samples are not of the same thing.
	Incomparable Standing = "incomparable"
)

// Methods of a comparison.
const (
	ByExactCount = "exact"
	ByWelch      = "welch"
)

// Comparison of a candidate with the current kernel in one measured thing.
type Comparison struct {
	Candidate string `json:"candidate"`
	Current   string `json:"current"`
	Workload  string `json:"workload"`
	Part      string `json:"part,omitempty"`
	Metric    string `json:"metric"`
	Unit      string `json:"unit"`

	Of stats.Summary `json:"candidate_summary"`
	To stats.Summary `json:"current_summary"`
	// Change of the median as a share of the current one, negative when the
	// candidate needs less. Nil when the current one is 0.
	Change *float64 `json:"change,omitempty"`
	// Spread that the difference has to beat: the larger of the two.
	Spread float64 `json:"spread"`

	Method   string      `json:"method"`
	Test     *stats.Test `json:"test,omitempty"`
	Standing Standing    `json:"standing"`
	// HostClock: kernels are measured one after the other, so that the host's load may make the difference.
	HostClock bool `json:"host_clock,omitempty"`
	// Reason of the standing, in words.
	Reason string `json:"reason"`
	// Unequal says why the two were not compared as equals. Then the figures
	// may be shown, under a title that says it, and decide nothing.
	Unequal []string `json:"unequal,omitempty"`
}

// Side of a comparison: a kernel and its sample.
type Side struct {
	Kernel Kernel
	Sample Sample
}

// Compare is antisymmetric: with the sides exchanged, better becomes worse.
func Compare(candidate, current Side, rules Rules) Comparison {
	a, b := candidate.Sample, current.Sample
	c := Comparison{
		Candidate: candidate.Kernel.Name, Current: current.Kernel.Name,
		Workload: a.Workload, Part: a.Part, Metric: a.Metric, Unit: a.Unit,
	}
	if why := different(candidate, current); why != "" {
		return c.incomparable(why)
	}
	var err error
	if c.Of, err = a.Summary(); err != nil {
		return c.incomparable(fmt.Sprintf("%s: %v", c.Candidate, err))
	}
	if c.To, err = b.Summary(); err != nil {
		return c.incomparable(fmt.Sprintf("%s: %v", c.Current, err))
	}
	c.Spread = max(c.Of.Spread, c.To.Spread)
	if c.To.Median > 0 {
		c.Change = new(c.Of.Median/c.To.Median - 1)
	}
	c.addUnequal(unequalMitigations(candidate.Kernel, current.Kernel))
	test := Run{Workload: a.Workload, Seed: a.Seed, Size: a.Size}
	c.addUnequal(trainedOn(candidate.Kernel, test))
	if candidate.Kernel.Name != current.Kernel.Name {
		c.addUnequal(trainedOn(current.Kernel, test))
	}
	c.HostClock = a.HostClock || b.HostClock
	if a.repeats() && b.repeats() && !c.HostClock {
		c.countExactly(rules)
	} else {
		c.judge(a, b, rules)
	}
	return c
}

// Title of the comparison; what makes it unequal stands in it.
func (c Comparison) Title() string {
	title := fmt.Sprintf("%s against %s: %s, %s", c.Candidate, c.Current, named(c.Workload, c.Part), MetricName(c.Metric))
	for _, why := range c.Unequal {
		title += " - AT " + why
	}
	return title
}

// different says why two samples are not of the same thing.
func different(candidate, current Side) string {
	a, b := candidate.Sample, current.Sample
	for _, side := range []Side{candidate, current} {
		if side.Kernel.Name != side.Sample.Kernel {
			return fmt.Sprintf("a sample of kernel %q stands for kernel %q", side.Sample.Kernel, side.Kernel.Name)
		}
	}
	for _, f := range []struct {
		what string
		a, b any
	}{
		{"workloads", a.Workload, b.Workload},
		{"parts", a.Part, b.Part},
		{"metrics", a.Metric, b.Metric},
		{"units", a.Unit, b.Unit},
		{"sizes", a.Size, b.Size},
		{"seeds", a.Seed, b.Seed},
		{"numbers of operations", a.Operations, b.Operations},
	} {
		if f.a != f.b {
			return fmt.Sprintf("different %s: %v and %v", f.what, f.a, f.b)
		}
	}
	return ""
}

func (c Comparison) incomparable(why string) Comparison {
	c.Standing, c.Reason = Incomparable, why
	return c
}

func (c *Comparison) addUnequal(why string) {
	if why != "" {
		c.Unequal = append(c.Unequal, why)
	}
}

// Unequal says why comparisons are not between equals, each reason once.
func Unequal(comparisons []Comparison) []string {
	var all []string
	for _, c := range comparisons {
		for _, why := range c.Unequal {
			if !slices.Contains(all, why) {
				all = append(all, why)
			}
		}
	}
	return all
}

// repeats says that the sample is as exact as it claims.
func (s Sample) repeats() bool {
	for _, v := range s.Values {
		if v != s.Values[0] {
			return false
		}
	}
	return s.Exact
}

func (c *Comparison) countExactly(rules Rules) {
	c.Method = ByExactCount
	switch {
	case c.Of.Median == c.To.Median:
		c.Standing, c.Reason = Equal, "exact counts, and the same"
	case c.withinResolution(rules):
		c.Standing, c.Reason = Unclear, unresolved(rules)
	case c.Of.Median < c.To.Median:
		c.Standing, c.Reason = Better, "exact counts, and fewer"
	default:
		c.Standing, c.Reason = Worse, "exact counts, and more"
	}
}

func (c *Comparison) withinResolution(rules Rules) bool {
	return math.Abs(c.Of.Median-c.To.Median) <= rules.Resolution*max(c.Of.Median, c.To.Median)
}

func unresolved(rules Rules) string {
	return fmt.Sprintf("no more than %s, which builds of one kernel may differ by", strings.TrimPrefix(Percent(rules.Resolution), "+"))
}

// judge where values vary.
func (c *Comparison) judge(a, b Sample, rules Rules) {
	c.Method = ByWelch
	for _, s := range []Sample{a, b} {
		// A constant that is known exactly has no spread to find.
		if n := len(s.Values); n < rules.LeastRepetitions && !s.repeats() {
			c.Standing = Unclear
			c.Reason = fmt.Sprintf("%d repetitions on %s, %d are needed", n, s.Kernel, rules.LeastRepetitions)
			return
		}
	}
	test := stats.Welch(c.Of, c.To)
	c.Test = &test
	difference := c.Of.Median - c.To.Median
	switch {
	case c.HostClock:
		c.Standing, c.Reason = Unclear, "counted by the host's clock, so that the host's load is in it"
	case math.Abs(difference) <= c.Spread:
		c.Standing = Unclear
		c.Reason = fmt.Sprintf("the difference of %s is within the spread of %s", number(math.Abs(difference)), number(c.Spread))
	case c.withinResolution(rules):
		c.Standing, c.Reason = Unclear, unresolved(rules)
	case !(test.P < rules.Significance):
		c.Standing = Unclear
		c.Reason = fmt.Sprintf("not significant: p = %s, not below %v", number(test.P), rules.Significance)
	case (difference < 0) != (c.Of.Mean < c.To.Mean):
		c.Standing, c.Reason = Unclear, "median and mean contradict each other"
	case difference < 0:
		c.Standing, c.Reason = Better, beyond(c.Spread, test.P)
	default:
		c.Standing, c.Reason = Worse, beyond(c.Spread, test.P)
	}
	if a.Exact && b.Exact {
		c.Reason += "; said to be exact, but the repetitions differ"
	}
}

func beyond(spread, p float64) string {
	return fmt.Sprintf("by more than the spread of %s, p = %s", number(spread), number(p))
}
