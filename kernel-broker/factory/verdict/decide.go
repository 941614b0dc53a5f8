// SPDX-License-Identifier: Apache-2.0

// Package verdict decides whether a kernel is better than another for an
// application, from what was measured and from nothing else: no clock, no
// file, no kernel. The same samples and the same rules give the same verdict,
// so that anyone can repeat it from a report's JSON.
//
// The idea: a kernel that does not win is refused. A candidate has to beat the
// current kernel on its own application's workload, by more than the spread of
// what was measured, and, where measuring is not exact, significantly (Welch's
// t-test at 0.05). It has to pass the workloads that check for correctness. And
// a comparison counts only between like and like: the same mitigations, the
// same workload, the same seed and size, and not the data on which the kernel
// was trained.
//
// Beside the outcome a verdict states gains against the slim and the stock kernel,
// and what they are of the workload or the application as a whole. They inform, and
// decide nothing.
//
// Figures that come from a model (an L1 instruction cache, a branch predictor)
// have luck of the layout in them. They are shown, and never decide.
package verdict

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// CheckRun is the result of a workload that checks for correctness.
type CheckRun struct {
	Workload string `json:"workload"`
	Kernel   string `json:"kernel"`
	Passed   bool   `json:"passed"`
	// NotChecked: the workload ran to its end, and has no check of what it did.
	NotChecked bool `json:"not_checked,omitempty"`
	// Detail says what was wrong.
	Detail string `json:"detail,omitempty"`
}

// Case is all that a verdict is made of.
type Case struct {
	Application Application
	Candidate   Kernel
	Current     Kernel
	// Stock is the distribution's own kernel. A kernel that wins does about the
	// processor's flaws what that one does, unless the rules allow others.
	// Without facts about it nothing is asked, unless there are none because it
	// failed.
	Stock Kernel
	// Slim is the slim kernel compiled with plain -O2; without a name where the
	// candidate is that one.
	Slim    Kernel
	Samples []Sample
	// RunShares are the kernel's shares of the application's own jobs, where they
	// were recorded. They count in place of the workload's.
	RunShares []RunShare
	Checks    []CheckRun
	// Required are the checks without which there is no verdict.
	Required []string
	Rules    Rules
}

type Verdict struct {
	Outcome kb.Outcome `json:"outcome"`
	Reason  string     `json:"reason"`
	// Comparisons in the metrics that decide.
	Comparisons []Comparison `json:"comparisons"`
	// Gains against the slim, the distribution's and the current kernel, of the
	// kernel and of the application as a whole.
	Gains []Gain `json:"gains,omitempty"`
}

// Decide is pure. A candidate wins when it is better in at least one of the
// metrics that decide, and worse in none: where both are taken, a gain in
// instructions that costs time is no gain.
func Decide(c Case) Verdict {
	v := c.decide()
	v.Gains = c.gains()
	return v
}

func (c Case) decide() Verdict {
	if err := c.Rules.Check(); err != nil {
		return refused("%v", err)
	}
	if c.Candidate.Name == c.Current.Name {
		return refused("%s is the current kernel", c.Candidate.Name)
	}
	if v := c.correct(); v != nil {
		return *v
	}
	set, err := NewSet(c.Samples)
	if err != nil {
		return refused("%v", err)
	}
	var wholes []Whole
	var comparisons []Comparison
	instructions, _ := set.Instructions()
	for _, metric := range []string{instructions, WallTime} {
		candidate, current := set.All(c.Candidate, metric, c.Application.Test), set.All(c.Current, metric, c.Application.Test)
		if len(candidate) > 0 && len(current) > 0 {
			whole := CompareAll(candidate, current, c.Rules)
			wholes = append(wholes, whole)
			comparisons = append(comparisons, whole.Parts...)
		}
	}
	v := c.weigh(wholes)
	if v.Outcome == kb.OutcomeBenefit {
		v.Reason += c.allowed()
	}
	v.Comparisons = comparisons
	return v
}

// unlike are the kernels that do other things about the processor's flaws than
// the candidate, of those that it is to be like.
func (c Case) unlike() []Kernel {
	var others []Kernel
	for i, other := range []Kernel{c.Current, c.Stock} {
		known := i == 0 || len(other.Mitigations) > 0 && other.Name != c.Current.Name
		if known && unequalMitigations(c.Candidate, other) != "" {
			others = append(others, other)
		}
	}
	return others
}

// stockFailed is the check in which the stock kernel failed before anything else
// was known of it; empty if there is none.
func (c Case) stockFailed() string {
	for _, check := range c.Checks {
		if check.Kernel == c.Stock.Name && !check.Passed && len(c.Stock.Mitigations) == 0 {
			return check.Workload
		}
	}
	return ""
}

// allowed says what a kernel won in spite of.
func (c Case) allowed() string {
	text := ""
	for _, other := range c.unlike() {
		text += fmt.Sprintf(" - AT %s, against %s, which the site's policy allows", unequalMitigations(c.Candidate, other), other.Name)
	}
	return text
}

func refused(format string, args ...any) Verdict {
	return Verdict{Outcome: kb.OutcomeRefused, Reason: fmt.Sprintf(format, args...)}
}

// correct is nil when the candidate passed all that it had to.
func (c Case) correct() *Verdict {
	ran, unchecked := map[string]bool{}, map[string]bool{}
	var wrong []string
	for _, check := range c.Checks {
		if check.Kernel != c.Candidate.Name {
			continue
		}
		if check.NotChecked {
			unchecked[check.Workload] = true
			continue
		}
		ran[check.Workload] = true
		if !check.Passed {
			wrong = append(wrong, fmt.Sprintf("%s (%s)", check.Workload, check.Detail))
		}
	}
	if len(wrong) > 0 {
		return &Verdict{Outcome: kb.OutcomeNoBenefit, Reason: "not correct: " + strings.Join(wrong, ", ")}
	}
	for _, name := range c.Required {
		if unchecked[name] {
			v := refused("workload %q has no check: nothing says that %s works", name, c.Candidate.Name)
			return &v
		}
		if !ran[name] {
			v := refused("check %q did not run on %s", name, c.Candidate.Name)
			return &v
		}
	}
	if len(ran) == 0 {
		v := refused("no check for correctness ran on %s", c.Candidate.Name)
		return &v
	}
	return nil
}

func (c Case) weigh(wholes []Whole) Verdict {
	test := c.Application.Test
	if len(wholes) == 0 {
		return refused("%s with seed %d and size %d was not measured on both %s and %s",
			test.Workload, test.Seed, test.Size, c.Candidate.Name, c.Current.Name)
	}
	if !c.Rules.UnequalMitigations {
		if unlike := c.unlike(); len(unlike) > 0 {
			return refused("%s", whatIsUnequal(c.Candidate, unlike[0]))
		}
		if failed := c.stockFailed(); failed != "" {
			return refused("%s fails %s: what it does about the processor's flaws is not known", c.Stock.Name, failed)
		}
	}
	var won, lost, neither []string
	for _, one := range wholes {
		unequal := slices.DeleteFunc(slices.Clone(one.Unequal), func(why string) bool { return strings.HasPrefix(why, atMitigations) })
		if len(unequal) > 0 {
			return refused("%s", strings.Join(unequal, "; "))
		}
		switch {
		case one.Standing == Incomparable:
			return refused("%s: %s", MetricName(one.Metric), one.Reason)
		case slices.ContainsFunc(one.Parts, func(c Comparison) bool { return c.HostClock }):
			return refused("%s: a workload with one CPU allows a verdict", one.words())
		case one.Standing == Worse:
			lost = append(lost, one.words())
		case one.Standing == Better && -one.Change < c.Rules.LeastGain:
			neither = append(neither, one.words()+"; less than the least gain of "+Percent(-c.Rules.LeastGain))
		case one.Standing == Better:
			won = append(won, one.words())
		default:
			neither = append(neither, one.words())
		}
	}
	switch {
	case len(lost) > 0:
		return Verdict{Outcome: kb.OutcomeNoBenefit, Reason: strings.Join(append(lost, won...), "; ")}
	case len(won) > 0:
		return Verdict{Outcome: kb.OutcomeBenefit, Reason: strings.Join(append(won, neither...), "; ")}
	}
	return Verdict{Outcome: kb.OutcomeNoBenefit, Reason: strings.Join(neither, "; ")}
}

// MetricName for a metric; a model's figure is called one wherever it is named.
func MetricName(metric string) string {
	switch metric {
	case KernelWeighed:
		return "kernel instructions (strings weighed)"
	case UserWeighed:
		return "user instructions (strings weighed)"
	case KernelInstructions:
		return "kernel instructions"
	case UserInstructions:
		return "user instructions"
	case Strings:
		return "beginnings of string instructions in the kernel"
	case StringBytes:
		return "bytes of string instructions in the kernel"
	case TakenBranches:
		return "taken branches in the kernel"
	case Mispredictions:
		return "mispredicted branches (model)"
	case L1IMisses:
		return "L1 instruction cache misses (model)"
	case ITLBMisses:
		return "instruction TLB misses (model)"
	case L1DMisses:
		return "L1 data cache misses in the kernel (model)"
	case DTLBMisses:
		return "data TLB misses in the kernel (model)"
	case TextLines:
		return "cache lines of kernel code that ran"
	case TextPages:
		return "pages of kernel code that ran"
	case WallTime:
		return "wall time"
	case EmulatedTime:
		return "wall time of the emulator"
	}
	return metric
}

// number with the digits that a reader can use.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// Percent of a share, signed, as in "-4.5 %"; a small one keeps a digit that
// is not 0, since an exact count knows it.
func Percent(share float64) string {
	percent := 100 * share
	switch size := math.Abs(percent); {
	case size == 0:
		return "0 %"
	case size < 0.1:
		return strings.Replace(fmt.Sprintf("%+.1g %%", percent), "e-0", "e-", 1)
	}
	return fmt.Sprintf("%+.1f %%", percent)
}
