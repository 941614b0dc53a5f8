// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Result of a proposal.
type Result string

// The results.
const (
	// Kept: the kernel with it is better than the best one before it.
	Kept Result = "kept"
	// Replaced: it was kept, until another one of its group was better.
	Replaced Result = "replaced"
	// NoGain: the kernel with it is not better.
	NoGain Result = "no gain"
	// Fails: there is no such kernel, or it does not boot, or the workload fails on it.
	Fails Result = "fails"
	// NotAllowed: the site does not give up what it costs.
	NotAllowed Result = "not allowed"
	// InRecipe: the recipe has it.
	InRecipe Result = "in the recipe"
	// NotTried: the budget was used up before.
	NotTried Result = "not tried"
)

// Trial is what became of a proposal.
type Trial struct {
	Proposal
	Result Result `json:"result"`
	// Beside are the fragments that were kept when it was tried.
	Beside []string `json:"beside,omitempty"`
	// Change of kernel instructions, strings weighed, against the best kernel before it, as a
	// share; nil where nothing was measured.
	Change *float64 `json:"change,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// Words for the trial in a line.
func (t Trial) Words() string {
	text := fmt.Sprintf("%s: %s", t.Fragment, t.Result)
	if t.Change != nil {
		text += ", " + verdict.Percent(*t.Change)
	}
	if t.Reason != "" {
		text += " (" + t.Reason + ")"
	}
	return text
}

// Outcome of a search.
type Outcome struct {
	// Kept are the fragments that won, in the order in which they were kept.
	Kept   []string `json:"kept"`
	Trials []Trial  `json:"trials"`
	// Overrides are what the recipe's overrides should be: its own and what was
	// kept. Empty where that is not confirmed.
	Overrides []string `json:"overrides,omitempty"`
	// Change of the training data by all that was kept, against the recipe's
	// plain kernel.
	Change float64 `json:"change"`
	// Confirmed is the same comparison with data on which nothing was chosen; nil
	// where nothing was kept.
	Confirmed *Confirmation `json:"confirmed,omitempty"`
}

// Confirmation compares the kernel that was found with the recipe's plain one.
type Confirmation struct {
	Standing verdict.Standing `json:"standing"`
	Change   float64          `json:"change"`
	Reason   string           `json:"reason"`
}

// Answer is what was measured of a kernel.
type Answer struct {
	Samples     []verdict.Sample
	Mitigations []string
	// Fault is why there is nothing to measure; empty for a kernel that works.
	Fault string
}

// Ask builds and measures the recipe's kernel with these fragments laid over. Test
// asks for the data of the test run. An error means that no answer could be had (a
// full disk, a stop), which is no proposal's fault.
type Ask func(ctx context.Context, fragments []string, test bool) (Answer, error)

// Search tries proposals.
type Search struct {
	Proposals []Proposal
	// InRecipe are the fragments that the recipe has already, and Overrides its own
	// overrides among them.
	InRecipe, Overrides []string
	// Groups are the proposals' groups by fragment, also of those that are not
	// tried.
	Groups map[string]string
	// MayGiveUp is what the site allows.
	MayGiveUp []site.Loss
	Rules     verdict.Rules
	Ask       Ask
	// More is asked before each trial: false ends the search.
	More func() bool
	// Say reports each trial; may be nil.
	Say func(Trial)

	best    Answer
	outcome Outcome
}

// ErrBaseline says that the recipe's own kernel cannot be measured.
var ErrBaseline = errors.New("the recipe's plain kernel")

// Run tries the proposals one after the other. With n of them it builds at most
// n + 1 kernels. Proposals that win only together are not found.
func (s *Search) Run(ctx context.Context) (Outcome, error) {
	base, err := s.Ask(ctx, nil, false)
	if err != nil {
		return Outcome{}, err
	}
	if base.Fault != "" {
		return Outcome{}, fmt.Errorf("%w: %s", ErrBaseline, base.Fault)
	}
	s.best, s.outcome = base, Outcome{Kept: []string{}}
	for _, p := range s.Proposals {
		trial, err := s.try(ctx, p)
		if err != nil {
			return Outcome{}, err
		}
		s.outcome.Trials = append(s.outcome.Trials, trial)
		if s.Say != nil {
			s.Say(trial)
		}
	}
	if len(s.outcome.Kept) == 0 {
		return s.outcome, nil
	}
	whole, err := s.compare(s.best, base)
	if err != nil {
		return Outcome{}, err
	}
	s.outcome.Change = whole.Change
	s.outcome.Confirmed, err = s.confirm(ctx)
	if err == nil && s.outcome.Confirmed.Standing == verdict.Better {
		s.outcome.Overrides = slices.Concat(s.Overrides, s.outcome.Kept)
	}
	return s.outcome, err
}

// Measured reports whether anything was found out of the proposals.
func (o Outcome) Measured() bool {
	return slices.ContainsFunc(o.Trials, func(t Trial) bool { return t.Change != nil })
}

// Left counts the proposals that were not tried for want of time.
func (o Outcome) Left() (count int) {
	for _, t := range o.Trials {
		if t.Result == NotTried {
			count++
		}
	}
	return count
}

// has is the member of the proposal's group that the recipe has, or empty.
func (s *Search) has(p Proposal) string {
	i := slices.IndexFunc(s.InRecipe, func(name string) bool { return p.Group != "" && s.Groups[name] == p.Group })
	if i < 0 {
		return ""
	}
	return s.InRecipe[i]
}

func (s *Search) try(ctx context.Context, p Proposal) (Trial, error) {
	t := Trial{Proposal: p}
	switch {
	case slices.Contains(s.InRecipe, p.Fragment):
		t.Result = InRecipe
		return t, nil
	case s.has(p) != "":
		t.Result, t.Reason = InRecipe, fmt.Sprintf("has %s of this group: take that out of it to try this one", s.has(p))
		return t, nil
	case p.GivesUp != "" && !slices.Contains(s.MayGiveUp, p.GivesUp):
		t.Result, t.Reason = NotAllowed, fmt.Sprintf("gives up %s: the site does not say so under may_give_up", p.GivesUp)
		return t, nil
	case s.More != nil && !s.More():
		t.Result, t.Reason = NotTried, "the budget is used up"
		return t, nil
	}
	rival := s.rival(p)
	t.Beside = slices.DeleteFunc(slices.Clone(s.outcome.Kept), func(name string) bool { return name == rival })
	answer, err := s.Ask(ctx, append(slices.Clone(t.Beside), p.Fragment), false)
	if err != nil {
		return Trial{}, err
	}
	if answer.Fault != "" {
		t.Result, t.Reason = Fails, answer.Fault
		return t, nil
	}
	whole, err := s.compare(answer, s.best)
	if err != nil {
		return Trial{}, fmt.Errorf("proposal %q: %w", p.Fragment, err)
	}
	t.Change, t.Reason = new(whole.Change), whole.Reason
	switch {
	case len(whole.Unequal) > 0 && !s.Rules.UnequalMitigations:
		t.Result, t.Reason = NotAllowed, whole.Unequal[0]
	case whole.Standing != verdict.Better:
		t.Result = NoGain
	default:
		t.Result = Kept
		s.keep(t, rival, answer)
	}
	return t, nil
}

// rival is the kept fragment of the proposal's group, or empty.
func (s *Search) rival(p Proposal) string {
	i := slices.IndexFunc(s.outcome.Trials, func(t Trial) bool { return t.Result == Kept && t.Group == p.Group })
	if p.Group == "" || i < 0 {
		return ""
	}
	return s.outcome.Trials[i].Fragment
}

func (s *Search) keep(t Trial, rival string, answer Answer) {
	s.best = answer
	s.outcome.Kept = append(slices.Clone(t.Beside), t.Fragment)
	for i := range s.outcome.Trials {
		if s.outcome.Trials[i].Fragment == rival {
			s.outcome.Trials[i].Result, s.outcome.Trials[i].Reason = Replaced, "by "+t.Fragment
		}
	}
}

// confirm measures both ends with the test data.
func (s *Search) confirm(ctx context.Context) (*Confirmation, error) {
	var ends [2]Answer
	for i, fragments := range [][]string{nil, s.outcome.Kept} {
		var err error
		if ends[i], err = s.Ask(ctx, fragments, true); err != nil {
			return nil, err
		}
		if ends[i].Fault != "" {
			return &Confirmation{Standing: verdict.Incomparable, Reason: ends[i].Fault}, nil
		}
	}
	whole, err := s.compare(ends[1], ends[0])
	if err != nil {
		return nil, err
	}
	return &Confirmation{whole.Standing, whole.Change, whole.Reason}, nil
}

// compare in kernel instructions with strings weighed, part by part.
func (s *Search) compare(with, without Answer) (verdict.Whole, error) {
	if len(with.Samples) == 0 || len(without.Samples) == 0 {
		return verdict.Whole{}, errors.New("nothing was measured")
	}
	a, b := verdict.Kernel{Name: "with", Mitigations: with.Mitigations}, verdict.Kernel{Name: "without", Mitigations: without.Mitigations}
	var all []verdict.Sample
	for _, side := range []struct {
		name    string
		samples []verdict.Sample
	}{{a.Name, with.Samples}, {b.Name, without.Samples}} {
		for _, sample := range side.samples {
			sample.Kernel = side.name
			all = append(all, sample)
		}
	}
	set, err := verdict.NewSet(all)
	if err != nil {
		return verdict.Whole{}, err
	}
	run := with.Samples[0].Run()
	left, right := set.All(a, verdict.KernelWeighed, run), set.All(b, verdict.KernelWeighed, run)
	if len(left) == 0 || len(right) == 0 {
		return verdict.Whole{}, fmt.Errorf("%s was not measured on both kernels in all parts", verdict.MetricName(verdict.KernelWeighed))
	}
	return verdict.CompareAll(left, right, s.Rules), nil
}
