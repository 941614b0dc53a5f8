// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
)

// Baselines of a Gain.
const (
	// BaselineSlim is the slim kernel compiled with plain -O2.
	BaselineSlim = "slim"
	// BaselineStock is the distribution's own kernel.
	BaselineStock = "stock"
	// BaselineCurrent is the kernel that jobs get today, where it is neither.
	BaselineCurrent = "current"
)

// Gain of a candidate against one kernel, on its application's own workload and
// in kernel instructions with strings weighed. It informs; what decides are the comparisons.
type Gain struct {
	Baseline string `json:"baseline"`
	// Kernel is the baseline's name in the report.
	Kernel string `json:"kernel"`
	Metric string `json:"metric"`
	// Change of the kernel's cost, as a share; negative is less.
	Change   Estimate `json:"change"`
	Standing Standing `json:"standing"`
	Unequal  []string `json:"unequal,omitempty"`
	// Share of the application, or of the workload that stands for it, that is
	// spent in the kernel; nil: nothing measured it.
	Share *Share `json:"kernel_share,omitempty"`
	// Whole is the change for the same as a whole, Share times Change; nil without
	// a share.
	Whole *Estimate `json:"whole,omitempty"`
}

// Estimate is a share with its spread. For a change that is what any pairing of
// repetitions gives, and what builds of one kernel may differ by.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// String is the text for a change, as in "-13.3 % (-13.4 to -13.1)".
func (e Estimate) String() string {
	bare := func(v float64) string { return strings.TrimSuffix(Percent(v), " %") }
	return fmt.Sprintf("%s (%s to %s)", Percent(e.Value), bare(e.Low), bare(e.High))
}

// Part is the text for a part of something, which has no sign.
func (e Estimate) Part() string { return strings.ReplaceAll(e.String(), "+", "") }

// times multiplies, with the spread that both factors allow.
func (e Estimate) times(f Estimate) Estimate {
	corners := []float64{e.Low * f.Low, e.Low * f.High, e.High * f.Low, e.High * f.High}
	return Estimate{e.Value * f.Value, slices.Min(corners), slices.Max(corners)}.ordered()
}

// ordered mends what rounding did to the order of the three.
func (e Estimate) ordered() Estimate {
	return Estimate{e.Value, min(e.Low, e.Value), max(e.High, e.Value)}
}

// Share of a whole that is spent in the kernel.
type Share struct {
	Estimate
	Source kb.ShareSource `json:"source"`
	// Runs of the jobs; none for a workload.
	Runs []RunShare `json:"runs,omitempty"`
}

// RunShare is the share of a job's CPU time that the kernel had in one profiling
// run, without what the measuring took.
type RunShare struct {
	Run uint64 `json:"run"`
	// Kernel that the job ran on, NAME@VERSION.
	Kernel string  `json:"kernel"`
	Share  float64 `json:"share"`
}

// From says what the share is of, and where it was measured. A workload may replay a
// part of its application only: its share is not called the application's.
func (s Share) From() string {
	if s.Source == kb.ShareOfWorkload {
		return "the workload's instructions, counted in the same run"
	}
	var runs []string
	for _, r := range s.Runs {
		runs = append(runs, fmt.Sprintf("run %d on %s", r.Run, r.Kernel))
	}
	return "the CPU time of the application's jobs, " + strings.Join(runs, ", ")
}

// Of says what is meant by the whole of a share.
func (s Share) Of() string {
	if s.Source == kb.ShareOfWorkload {
		return "the workload as a whole"
	}
	return "the application as a whole"
}

// ShareNotKnown is said where nothing measured the kernel's share.
const ShareNotKnown = "kernel share not known"

func (g Gain) Words() string {
	text := fmt.Sprintf("against %s: %s %s", g.Kernel, MetricName(g.Metric), g.Change)
	if g.Standing == Unclear {
		text += ", which may be chance"
	}
	for _, why := range g.Unequal {
		text += " - AT " + why
	}
	if g.Whole == nil {
		return text + "; the application as a whole: " + ShareNotKnown
	}
	return fmt.Sprintf("%s; %s %s, with a kernel share of %s of %s", text, g.Share.Of(), g.Whole, g.Share.Part(), g.Share.From())
}

// gains against each baseline that was measured, whatever the outcome.
func (c Case) gains() []Gain {
	set, err := NewSet(c.Samples)
	if err != nil || c.Rules.Check() != nil {
		return nil
	}
	var gains []Gain
	seen := []string{"", c.Candidate.Name}
	for _, b := range []struct {
		baseline string
		kernel   Kernel
	}{{BaselineSlim, c.Slim}, {BaselineStock, c.Stock}, {BaselineCurrent, c.Current}} {
		if slices.Contains(seen, b.kernel.Name) {
			continue
		}
		seen = append(seen, b.kernel.Name)
		if gain := c.gain(set, b.kernel); gain != nil {
			gain.Baseline = b.baseline
			gains = append(gains, *gain)
		}
	}
	return gains
}

// gain is nil where one of the two was not measured, or they cannot be compared.
func (c Case) gain(set *Set, against Kernel) *Gain {
	metric, _ := set.Instructions()
	candidate := set.All(c.Candidate, metric, c.Application.Test)
	baseline := set.All(against, metric, c.Application.Test)
	if len(candidate) == 0 || len(baseline) == 0 {
		return nil
	}
	whole := CompareAll(candidate, baseline, c.Rules)
	change, err := whole.estimate(c.Rules.Resolution)
	if err != nil {
		return nil
	}
	g := &Gain{Kernel: against.Name, Metric: whole.Metric, Change: change, Standing: whole.Standing, Unequal: whole.Unequal}
	if len(c.RunShares) > 0 {
		g.Share = shareOfRuns(c.RunShares)
	} else {
		g.Share = c.shareOfWorkload(set, against)
	}
	if g.Share != nil {
		g.Whole = new(g.Share.times(change))
	}
	return g
}

// estimate is the change with its spread. As in Change, a part whose difference
// may be chance counts as none, and its chance is in the spread. An exact count
// repeats on one build only: another build of the same code may differ by as much
// as the resolution.
func (w Whole) estimate(resolution float64) (Estimate, error) {
	if w.Standing == Incomparable {
		return Estimate{}, stats.ErrBadValue
	}
	var lows, highs []float64
	for _, part := range w.Parts {
		if part.To.Least == 0 {
			return Estimate{}, stats.ErrBadValue
		}
		low, high := part.Of.Least/part.To.Most, part.Of.Most/part.To.Least
		if len(w.Parts) > 1 && part.Standing == Unclear {
			low, high = min(low, 1), max(high, 1)
		}
		lows, highs = append(lows, low), append(highs, high)
	}
	low, high := lows[0], highs[0]
	if len(w.Parts) > 1 {
		var err error
		if low, err = stats.GeometricMean(lows); err != nil {
			return Estimate{}, err
		}
		if high, err = stats.GeometricMean(highs); err != nil {
			return Estimate{}, err
		}
	}
	return Estimate{w.Change, low*(1-resolution) - 1, high*(1+resolution) - 1}.ordered(), nil
}

// shareOfWorkload is nil unless the program's own instructions were counted beside
// the kernel's, in every part.
func (c Case) shareOfWorkload(set *Set, kernel Kernel) *Share {
	ofKernel, ofUser := set.Instructions()
	inside, outside := set.All(kernel, ofKernel, c.Application.Test), set.All(kernel, ofUser, c.Application.Test)
	if len(inside) != len(outside) {
		return nil
	}
	var in, out stats.Summary // of all operations of all parts
	for i := range inside {
		a, b := inside[i].Sample, outside[i].Sample
		k, err := a.Summary()
		if err != nil || a.Part != b.Part || a.Operations != b.Operations {
			return nil
		}
		u, err := b.Summary()
		if err != nil {
			return nil
		}
		for _, one := range []struct {
			sum *stats.Summary
			of  stats.Summary
		}{{&in, k}, {&out, u}} {
			one.sum.Median += one.of.Median * float64(a.Operations)
			one.sum.Least += one.of.Least * float64(a.Operations)
			one.sum.Most += one.of.Most * float64(a.Operations)
		}
	}
	if !(in.Median+out.Median > 0) {
		return nil
	}
	part := func(in, out float64) float64 {
		if in == 0 {
			return 0
		}
		return in / (in + out)
	}
	estimate := Estimate{part(in.Median, out.Median), part(in.Least, out.Most), part(in.Most, out.Least)}
	return &Share{Estimate: estimate.ordered(), Source: kb.ShareOfWorkload}
}

// shareOfRuns is the median of several runs, each of which counts alike.
func shareOfRuns(runs []RunShare) *Share {
	var values []float64
	for _, r := range runs {
		if !(r.Share >= 0 && r.Share <= 1) {
			return nil
		}
		values = append(values, r.Share)
	}
	s, err := stats.Summarise(values)
	if err != nil {
		return nil
	}
	return &Share{Estimate: Estimate{s.Median, s.Least, s.Most}, Source: kb.ShareOfRuns, Runs: runs}
}

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
		count[c.Standing]++
		ratios = append(ratios, c.clear())
	}
	whole.Unequal = Unequal(whole.Parts)
	if i := slices.IndexFunc(whole.Parts, func(c Comparison) bool { return c.Standing == Incomparable }); i >= 0 {
		whole.Standing, whole.Reason = Incomparable, whole.Parts[i].Reason
		return whole
	}
	if len(whole.Parts) == 1 {
		only := whole.Parts[0]
		whole.Standing, whole.Reason, whole.Change = only.Standing, only.Reason, only.change()
		return whole
	}
	whole.judge(ratios, count, rules)
	return whole
}

func (w *Whole) judge(ratios []float64, count map[Standing]int, rules Rules) {
	mean, err := stats.GeometricMean(ratios)
	if err != nil {
		w.Standing, w.Reason = Incomparable, fmt.Sprintf("geometric mean: %v", err)
		return
	}
	w.Change = mean - 1
	w.Reason = fmt.Sprintf("geometric mean of %d parts: %d better, %d worse, %d equal, %d unclear",
		len(ratios), count[Better], count[Worse], count[Equal], count[Unclear])
	switch {
	case count[Better]+count[Worse] == 0 && count[Unclear] > 0:
		w.Standing = Unclear
		if w.Parts[0].HostClock {
			w.Reason = w.Parts[0].Reason
		}
	case mean == 1:
		w.Standing = Equal
	case math.Abs(w.Change) <= rules.Resolution*max(mean, 1):
		// Parts that are clear may cancel out, or be few among many.
		w.Standing, w.Reason = Unclear, w.Reason+": "+unresolved(rules)
	case mean < 1:
		w.Standing = Better
	default:
		w.Standing = Worse
	}
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
