// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
)

// Whole is a comparison of two kernels in all parts of one run.
type Whole struct {
	Workload string
	Metric   string
	Parts    []Comparison
	Standing Standing
	// Change is the geometric mean of the parts' changes, as a share. A part
	// whose difference may be chance counts as no difference: many small
	// chances must not add up to a win.
	Change float64
	Reason string
	// Unequal has the reasons of all parts, each once.
	Unequal []string
}

// CompareAll compares part by part; both sides have the same parts in the same
// order, at least one.
func CompareAll(candidate, current []Side, rules Rules) Whole {
	whole := Whole{Workload: candidate[0].Sample.Workload, Metric: candidate[0].Sample.Metric}
	ratios := make([]float64, 0, len(candidate))
	count := map[Standing]int{}
	for i := range candidate {
		c := Compare(candidate[i], current[i], rules)
		whole.Parts = append(whole.Parts, c)
		for _, why := range c.Unequal {
			if !slices.Contains(whole.Unequal, why) {
				whole.Unequal = append(whole.Unequal, why)
			}
		}
		count[c.Standing]++
		ratios = append(ratios, c.clear())
	}
	if i := slices.IndexFunc(whole.Parts, func(c Comparison) bool { return c.Standing == Incomparable }); i >= 0 {
		whole.Standing, whole.Reason = Incomparable, whole.Parts[i].Reason
		return whole
	}
	if len(whole.Parts) == 1 {
		only := whole.Parts[0]
		whole.Standing, whole.Reason, whole.Change = only.Standing, only.Reason, only.change()
		return whole
	}
	whole.judge(ratios, count)
	return whole
}

func (w *Whole) judge(ratios []float64, count map[Standing]int) {
	mean, err := stats.GeometricMean(ratios)
	if err != nil {
		w.Standing, w.Reason = Incomparable, fmt.Sprintf("geometric mean: %v", err)
		return
	}
	w.Change = mean - 1
	switch {
	case count[Better]+count[Worse] == 0 && count[Unclear] > 0:
		w.Standing = Unclear
	case mean < 1:
		w.Standing = Better
	case mean > 1:
		w.Standing = Worse
	default:
		w.Standing = Equal
	}
	w.Reason = fmt.Sprintf("geometric mean of %d parts: %d better, %d worse, %d equal, %d unclear",
		len(ratios), count[Better], count[Worse], count[Equal], count[Unclear])
}

// clear is the ratio that a comparison stands for, 0 when there is none: with a
// part that one of two kernels does for nothing, no mean of ratios is left.
func (c Comparison) clear() float64 {
	if c.Standing != Better && c.Standing != Worse {
		return 1
	}
	if c.To.Median == 0 {
		return 0
	}
	return c.Of.Median / c.To.Median
}

func (c Comparison) change() float64 {
	if c.Change == nil {
		return 0
	}
	return *c.Change
}

// words for a comparison as a part of a verdict.
func (w Whole) words() string {
	change := Percent(w.Change)
	if len(w.Parts) == 1 && w.Parts[0].Change == nil {
		change = "from 0"
	}
	return fmt.Sprintf("%s %s on %s (%s)", MetricName(w.Metric), change, w.Workload, w.Reason)
}
