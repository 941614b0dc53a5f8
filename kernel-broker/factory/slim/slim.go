// SPDX-License-Identifier: Apache-2.0

// Package slim finds out what a kernel can do without, from a run of it.
//
// The way from a run to a fragment is a row of small questions, each answered
// by a pure function over files:
//
//	which addresses ran        ReadTrace: the blocks that the emulator ran
//	to which object each is    ReadLinkMap, Measure: ranges, not names, since
//	                           two functions may have one name
//	what jobs used besides     Uses.AddRuns: names from their profiling runs
//	which option builds it     ReadKbuild: the makefiles, for all
//	                           configurations at once
//	what hangs on the option   ReadKconfig, Without: depends and select
//	what must stay anyway      ReadKeepLists, KeepHardware: what no run under
//	                           emulation can know
//	what goes, and why         Propose
//
// A proposal is a guess. Slim has kconfig look at it first, then builds the
// kernel, boots it and puts it to work, all by an interface that the pipeline
// fills in. Where the kernel fails, Search finds the option to blame in few
// tries and keeps it with the reason. Outcome.Fragment writes it all down, so
// that users can read why each option went or stayed.
package slim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Kernels is what slimming needs of the factory. It is never asked for a
// kernel with nothing off, which is the one that ran.
type Kernels interface {
	// Configure gives the configuration that the recipe has when the options
	// are off. It compiles nothing and takes a second or two.
	Configure(ctx context.Context, off []string) (kconfig.Config, error)
	// Try builds the kernel with the options off, boots it and runs the
	// workload on it. A kernel that fails is an answer and no error.
	Try(ctx context.Context, off []string) (Answer, error)
}

type Input struct {
	Name  string
	Facts Facts
	// Missing drivers, as KeepHardware found them; they are only passed on.
	Missing []Missing
	// Runs of jobs, as Files.AddRuns returned them; they are only passed on.
	Runs    []RunCoverage
	Kernels Kernels
	// Answers of kernels that were tried, with the same source, recipe, compiler
	// and workload.
	Answers Answers
	// Limit is the most kernels to try, 0 for any number.
	Limit int
	// TextBefore is the code size of the kernel that ran.
	TextBefore int64
	Log        *slog.Logger
}

// Slim proposes what can go, sees what kconfig makes of it, and tries the
// kernel; for each failure it finds the option to blame and keeps it.
func Slim(ctx context.Context, input Input) (Outcome, error) {
	proposal := Propose(input.Facts)
	off := proposal.Off()
	input.Log.Info("slimming proposed", "kernel", input.Name, "options", len(off))
	checked, err := Search(ctx, off, proposal.Needs(), 0, input.check)
	if err != nil {
		return Outcome{}, fmt.Errorf("slimming of %q: configuration: %w", input.Name, err)
	}
	input.log("kconfig", checked)
	tried, err := Search(ctx, checked.Off, proposal.Needs(), input.Limit, input.Answers.Ask(input.try))
	if err != nil {
		return Outcome{}, fmt.Errorf("slimming of %q: %w", input.Name, err)
	}
	input.log("kernel", tried)
	outcome, err := input.outcome(ctx, proposal, checked, tried)
	if err != nil {
		return Outcome{}, fmt.Errorf("slimming of %q: %w", input.Name, err)
	}
	return outcome, nil
}

func (input Input) log(by string, found Found) {
	for _, blame := range found.Blamed {
		input.Log.Info("option stays", "kernel", input.Name, "option", blame.Symbol,
			"by", by, "stage", blame.Answer.Stage, "reason", blame.Answer.Reason)
	}
	input.Log.Info("slimming tried", "kernel", input.Name, "by", by, "off", len(found.Off), "calls", found.Calls)
}

// check asks kconfig, and looks whether all that goes may go.
func (input Input) check(ctx context.Context, off []string) (Answer, error) {
	if len(off) == 0 {
		return Answer{Works: true}, nil
	}
	after, err := input.Kernels.Configure(ctx, off)
	if err != nil {
		return Answer{}, err
	}
	if reason := input.Facts.Violation(off, after); reason != "" {
		return Answer{Stage: "configuration", Reason: reason}, nil
	}
	return Answer{Works: true}, nil
}

func (input Input) try(ctx context.Context, off []string) (Answer, error) {
	if len(off) == 0 {
		// This is the kernel that ran: its trace is the answer.
		return Answer{Works: true, Text: input.TextBefore}, nil
	}
	answer, err := input.check(ctx, off)
	if err != nil || !answer.Works {
		return answer, err
	}
	input.Log.Info("trying a kernel", "kernel", input.Name, "off", len(off))
	answer, err = input.Kernels.Try(ctx, off)
	if err != nil {
		return Answer{}, err
	}
	answer.Reason = oneLine(answer.Reason)
	return answer, nil
}

// Violation says what is wrong with a configuration that kconfig made: an
// option that came back, a kept one that went, or an object that was used.
// Empty means that it is what was asked for.
func (f Facts) Violation(off []string, after kconfig.Config) string {
	for _, symbol := range off {
		if after.On(symbol) {
			by := f.Kconfig.Selectors(symbol, after)
			if len(by) == 0 {
				return symbol + " is switched on again by kconfig"
			}
			return symbol + " is selected by " + strings.Join(by, ", ")
		}
	}
	for _, lost := range kconfig.SwitchedOff(f.Config, after) {
		if reason := f.Keep[lost]; reason != "" {
			return lost + " goes, and is kept: " + reason
		}
		if other := f.Kconfig.Traded(lost, after); other != "" {
			return lost + " would be traded for " + other
		}
	}
	for _, use := range f.gone(f.Config, after) {
		if why := use.tooWarm(); why != "" {
			return why
		}
	}
	return ""
}

// outcome puts the decisions together with what the searches found.
func (input Input) outcome(ctx context.Context, proposal Proposal, checked, tried Found) (Outcome, error) {
	facts := input.Facts
	outcome := Outcome{
		Name: input.Name, Objects: facts.Uses.Sum(), Checks: checked.Calls, Kernels: tried.Calls,
		TextBefore: input.TextBefore, TextAfter: tried.Last.Text, Missing: input.Missing, Runs: input.Runs,
	}
	after := facts.Config
	if len(tried.Off) > 0 {
		var err error
		if after, err = input.Kernels.Configure(ctx, tried.Off); err != nil {
			return Outcome{}, err
		}
	}
	outcome.Config = after
	for _, use := range facts.gone(facts.Config, after) {
		outcome.ObjectsGone++
		outcome.CodeGone += use.Code()
	}
	for _, decision := range proposal.Decisions {
		if decision.Goes {
			outcome.Proposed++
		}
		if reason := stays(decision.Symbol, checked, tried); decision.Goes && reason != "" {
			decision.Goes, decision.Reason = false, reason
		}
		switch {
		case decision.Goes:
			outcome.Gone = append(outcome.Gone, decision)
		case after.On(decision.Symbol):
			outcome.Stayed = append(outcome.Stayed, decision)
		default:
			outcome.Along = append(outcome.Along, decision.Symbol)
		}
	}
	return outcome, nil
}

// stays gives the reason why a proposed option was not switched off.
func stays(symbol string, searches ...Found) string {
	for _, found := range searches {
		if i := slices.IndexFunc(found.Blamed, func(b Blame) bool { return b.Symbol == symbol }); i >= 0 {
			answer := found.Blamed[i].Answer
			return fmt.Sprintf("without it the %s fails: %s", answer.Stage, answer.Reason)
		}
		if other := found.Bound[symbol]; other != "" {
			return fmt.Sprintf("%s, which has to stay, cannot stay without it", other)
		}
		if slices.Contains(found.Untried, symbol) {
			return "not tried: the most kernels to try were tried before its turn"
		}
	}
	return ""
}

// Answers is a folder of the answers to a search, a file for each question, so
// that a search that was killed goes on where it was: asked again, it has the
// same questions in the same order. All answers in it depend on the same.
type Answers string

// answered is what a file has.
type answered struct {
	Off    []string `json:"off"`
	Answer Answer   `json:"answer"`
}

// Ask answers from the folder where it can, and writes down what it learns.
func (a Answers) Ask(ask Ask) Ask {
	return func(ctx context.Context, off []string) (Answer, error) {
		sorted := slices.Sorted(slices.Values(off)) // their order does not change the kernel
		name := strings.TrimPrefix(digest.Of([]byte(strings.Join(sorted, "\n"))), "sha256:")
		path := filepath.Join(string(a), name+".json")
		var known answered
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &known)
		}
		if err == nil {
			return known.Answer, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Answer{}, fmt.Errorf("answer %s: %w", path, err)
		}
		if known.Answer, err = ask(ctx, off); err != nil {
			return Answer{}, err
		}
		known.Off = sorted
		if text, err = json.Marshal(known); err == nil {
			err = atomicfile.Write(path, text, 0o644)
		}
		return known.Answer, err
	}
}
