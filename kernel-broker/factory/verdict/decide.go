// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// Outcome of a verdict.
type Outcome string

// The outcomes.
const (
	// Benefit: the kernel may be published for its application.
	Benefit Outcome = "benefit"
	// NoBenefit: it was measured, and it did not win; it stays a candidate.
	NoBenefit Outcome = "no benefit"
	// Refused: what there is allows no verdict; it stays a candidate.
	Refused Outcome = "refused"
)

// CheckRun is the result of a workload that checks for correctness.
type CheckRun struct {
	Workload string `json:"workload"`
	Kernel   string `json:"kernel"`
	Passed   bool   `json:"passed"`
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
	// Without facts about it nothing is asked.
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

// Verdict on a candidate.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
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
	for _, metric := range []string{KernelInstructions, WallTime} {
		candidate, current := set.All(c.Candidate, metric, c.Application.Test), set.All(c.Current, metric, c.Application.Test)
		if len(candidate) > 0 && len(current) > 0 {
			whole := CompareAll(candidate, current, c.Rules)
			wholes = append(wholes, whole)
			comparisons = append(comparisons, whole.Parts...)
		}
	}
	v := c.weigh(wholes)
	if v.Outcome == Benefit {
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

// allowed says what a kernel won in spite of.
func (c Case) allowed() string {
	text := ""
	for _, other := range c.unlike() {
		text += fmt.Sprintf(" - AT %s, against %s, which the site's policy allows", unequalMitigations(c.Candidate, other), other.Name)
	}
	return text
}

func refused(format string, args ...any) Verdict {
	return Verdict{Outcome: Refused, Reason: fmt.Sprintf(format, args...)}
}

// correct is nil when the candidate passed all that it had to.
func (c Case) correct() *Verdict {
	ran := map[string]bool{}
	var wrong []string
	for _, check := range c.Checks {
		if check.Kernel != c.Candidate.Name {
			continue
		}
		ran[check.Workload] = true
		if !check.Passed {
			wrong = append(wrong, fmt.Sprintf("%s (%s)", check.Workload, check.Detail))
		}
	}
	if len(wrong) > 0 {
		return &Verdict{Outcome: NoBenefit, Reason: "not correct: " + strings.Join(wrong, ", ")}
	}
	for _, name := range c.Required {
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
	if unlike := c.unlike(); len(unlike) > 0 && !c.Rules.UnequalMitigations {
		return refused("%s", whatIsUnequal(c.Candidate, unlike[0]))
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
		return Verdict{Outcome: NoBenefit, Reason: strings.Join(append(lost, won...), "; ")}
	case len(won) > 0:
		return Verdict{Outcome: Benefit, Reason: strings.Join(append(won, neither...), "; ")}
	}
	return Verdict{Outcome: NoBenefit, Reason: strings.Join(neither, "; ")}
}
