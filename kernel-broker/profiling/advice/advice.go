// SPDX-License-Identifier: Apache-2.0

// Package advice says what a job would gain by which kernel, or that there is
// nothing to gain.
//
// The idea: a kernel cannot give a job more time than the kernel took from it.
// So each piece of advice comes with a bound, a share of the job's CPU time that
// was measured and can be checked by hand: what the kernel's own work takes
// bounds every faster kernel, what page faults take bounds larger pages, what
// other tasks and interrupts took bounds quiet CPUs. How much of a bound can be
// had is not guessed: building the kernel and measuring it tells.
//
// It is a pure function of the result. Its rules are a table, and each is
// tested by one.
package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Worthwhile is the share of a job's time below which nothing is worth a
// change: kernels of one source differ by as much.
const Worthwhile = 0.01

// Verdict in one word, for programs.
type Verdict string

// The verdicts.
const (
	// NothingToGain: all bounds together are below Worthwhile.
	NothingToGain Verdict = "nothing-to-gain"
	// WorthAKernel: the best advice is a kernel, or how one is booted.
	WorthAKernel Verdict = "worth-a-kernel"
	// WorthAChange: the best advice is for the program.
	WorthAChange Verdict = "worth-a-change"
	// Unknown: what decides was not measured.
	Unknown Verdict = "unknown"
)

// Decision that a report ends in.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	// Headline says it in a sentence.
	Headline string `json:"headline"`
	// KernelShare of the job's CPU time, without what the measuring took, where
	// that is known; nil if the job's time is not.
	KernelShare *float64 `json:"kernel_share"`
	// Measuring is the share of the job's CPU time that the collectors took.
	Measuring float64 `json:"measuring"`
	// Steps worth taking, the largest bound first; then estimates; those without a bound are last.
	Steps []Step `json:"steps"`
	// Caveats of the run: what was not seen.
	Caveats []string `json:"caveats"`
}

// Step is one thing to do.
type Step struct {
	// What is a short name of it, Title describes it.
	What  string `json:"what"`
	Title string `json:"title"`
	// Bound is the share of the job's CPU time that it can save at most, or of the
	// time that the job wanted its CPUs where others had them; nil if only calls
	// were counted.
	Bound *float64 `json:"bound"`
	// Why, with the figures that the bound is made of, and How to go on.
	Why string `json:"why"`
	How string `json:"how"`
	// Estimate: the bound comes from a collector that saw a part of the time only.
	Estimate bool `json:"estimate,omitempty"`
	// By is who can do it.
	By Doer `json:"by"`
	// Kernel: it is done by a kernel or its arguments, not by the program.
	Kernel bool `json:"kernel"`
}

// Doer is who can take a step.
type Doer string

// The doers.
const (
	ByBuilder       Doer = "kernel builder"
	ByAdministrator Doer = "administrator"
	ByAuthor        Doer = "program's author"
)

// SiteProfile is a profile that the site offers.
type SiteProfile struct {
	Name string
	// Saves is the share of the stock kernel's work that its kernel saved when it was measured; nil if nobody measured it.
	Saves *float64
}

// What the steps are called, beside those of package patterns.
const (
	ProfiledKernel = "profile-guided-kernel"
	LargerPages    = "larger-pages"
	MoveInterrupts = "move-interrupts"
	IsolateCPUs    = "isolate-cpus"
)

// facts are what the rules judge by.
type facts struct {
	result profiling.Result
	// jobNS is the job's CPU time on all nodes; 0 if it is not known.
	jobNS float64
	// kernel is the share of it that the kernel had, without the measuring.
	kernel float64
	// site's profiles, what saves most first.
	site []SiteProfile
}

// rule gives steps, with or without a bound.
type rule func(f facts) []Step

var rules = []rule{profiledKernel, largerPages, quietCPUs, program}

// Decide judges the result of a whole run, at a site that offers these profiles.
func Decide(r profiling.Result, site ...SiteProfile) Decision {
	f := facts{result: r, site: slices.Clone(site)}
	slices.SortStableFunc(f.site, func(a, b SiteProfile) int { return cmp.Compare(b.saves(), a.saves()) })
	for _, n := range r.Nodes {
		f.jobNS += float64(n.JobNS)
	}
	d := Decision{Measuring: measuring(r), Steps: []Step{}, Caveats: caveats(r)}
	share, known := r.KernelShare()
	if known {
		// The profiler works in the kernel, on the job's time: it took no more than the kernel had.
		all := d.Measuring
		d.Measuring = min(all, share)
		f.kernel = share - d.Measuring
		if all <= share || share < Worthwhile {
			d.KernelShare = &f.kernel
		}
	}
	for _, rule := range rules {
		for _, step := range rule(f) {
			if step.Bound == nil || *step.Bound >= Worthwhile {
				d.Steps = append(d.Steps, step)
			}
		}
	}
	slices.SortStableFunc(d.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.bound(), a.bound()))
	})
	d.judge(f, share)
	return d
}

func (p SiteProfile) saves() float64 {
	if p.Saves == nil {
		return 0
	}
	return *p.Saves
}

// rank keeps estimates behind what was measured.
func (s Step) rank() int {
	switch {
	case s.Bound == nil:
		return 2
	case s.Estimate:
		return 1
	default:
		return 0
	}
}

func (s Step) bound() float64 {
	if s.Bound == nil {
		return 0
	}
	return *s.Bound
}

// whole is what the bound is a share of: what others took is no CPU time of the job.
func (s Step) whole() string {
	if s.What == IsolateCPUs || s.What == MoveInterrupts {
		return "the time that it wanted its CPUs"
	}
	return "the job's CPU time"
}

func (d *Decision) judge(f facts, share float64) {
	switch {
	case d.KernelShare == nil && share > 0:
		d.Verdict = Unknown
		d.Headline = fmt.Sprintf("Nothing can be said: the profiler took all of the %s of the job's CPU time that the kernel had.", Percent(share))
		return
	case d.KernelShare == nil:
		d.Verdict = Unknown
		d.Headline = "Nothing can be said: the job's CPU time is not known."
		return
	}
	d.Headline = fmt.Sprintf("This job spent %s of its time in the kernel%s", Percent(*d.KernelShare), d.apart())
	if len(d.Steps) == 0 || d.Steps[0].Bound == nil {
		d.Verdict = NothingToGain
		if n := f.result.Noise; n != nil {
			d.Headline += fmt.Sprintf(", and others took %s", Percent(1-n.Left()))
		}
		d.Headline += ": nothing to gain from another kernel."
		if len(d.Steps) > 0 {
			d.Headline += " What the program could do otherwise stands below."
		}
		return
	}
	best := d.Steps[0]
	if d.Verdict = WorthAChange; best.Kernel {
		d.Verdict = WorthAKernel
	}
	d.Headline += fmt.Sprintf("; %s would save at most %s of %s.", lower(best.Title), Percent(best.bound()), best.whole())
	if best.What == ProfiledKernel {
		d.Headline += f.expected()
	}
}

// expected is what the site's kernels tell of how much of the bound one may save.
func (f facts) expected() string {
	if len(f.site) == 0 || f.site[0].saves() <= 0 {
		return ""
	}
	best := f.site[0]
	return fmt.Sprintf(" This site's best, %s, saves %s of the kernel's work: as good a one would save %s here.",
		best.Name, Percent(best.saves()), Percent(best.saves()*f.kernel))
}

// lower lets a title stand within a sentence.
func lower(title string) string {
	if len(title) > 1 && title[1] >= 'A' && title[1] <= 'Z' {
		return title // CPUs
	}
	return strings.ToLower(title[:1]) + title[1:]
}

// apart says what the share of the kernel is without, so that it can be told
// from the one in the job's table.
func (d *Decision) apart() string {
	if d.Measuring == 0 {
		return ""
	}
	return fmt.Sprintf(" (the profiler's own %s is already subtracted)", Percent(d.Measuring))
}

// measuring is the share of the job's CPU time that all collectors took
// together: by their events over the whole job where those were counted.
// Windows are a part of the job, most of them near its begin, and say what a
// collector cost there; only of those that cost by the clock they tell the rest.
func measuring(r profiling.Result) float64 {
	spent, job := map[profiling.Collector]float64{}, map[profiling.Collector]float64{}
	for _, o := range r.Overhead {
		spent[o.Collector] += float64(o.SpentNS)
		job[o.Collector] += float64(o.JobNS)
	}
	for c := range spent {
		if all, known := r.Covered(c); known && all.JobNS > 0 {
			spent[c], job[c] = float64(all.CostNS), float64(all.JobNS)
		}
	}
	sum := 0.0
	for c, ns := range spent {
		if job[c] > 0 {
			sum += ns / job[c]
		}
	}
	return sum
}

// caveats are what was not seen, and so may be missing above.
func caveats(r profiling.Result) []string {
	out := []string{}
	for _, c := range r.Estimated() {
		what := "its counts are estimates"
		if len(c.Scaled) == 0 {
			what = "its figures are of that part"
		}
		out = append(out, fmt.Sprintf("%s observed %s of the time, to cost the job no more than is allowed: %s", c.Collector, Percent(c.Share()), what))
	}
	for _, p := range r.Partial {
		out = append(out, fmt.Sprintf("node %s: %s%s", p.Node, prefix(p.Collector), p.Why))
	}
	for _, u := range r.Refused {
		what := string(u.Collector)
		if u.Part != "" {
			what += ", " + u.Part
		}
		out = append(out, fmt.Sprintf("node %s: %s: %s", u.Node, what, u.Detail))
	}
	return out
}

func prefix(c profiling.Collector) string {
	if c == "" {
		return ""
	}
	return string(c) + ": "
}

// Percent is a share for people, with two digits.
func Percent(share float64) string {
	switch p := 100 * math.Abs(share); {
	case p != 0 && p < 0.01:
		return "less than 0.01 %"
	case p < 1:
		return fmt.Sprintf("%.2g %%", 100*share)
	case p < 9.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*share), ".0") + " %"
	default:
		return fmt.Sprintf("%.0f %%", 100*share)
	}
}
