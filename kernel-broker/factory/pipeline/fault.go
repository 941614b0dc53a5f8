// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// Failed is the outcome of a kernel that does not do what it has to. No verdict
// was asked for.
const Failed verdict.Outcome = "failed"

// Stages at which a kernel can show its fault.
const (
	stageBoot     = "boot"
	stageWorkload = "workload"
)

// Fault is what a kernel did wrong where it was tried: it is to blame, and
// neither the bench nor the machine. A build that meets one ends with a
// candidate that failed. As it may be met by a job or by another build, it
// travels as the detail of the step's error.
type Fault struct {
	// Kernel is the folder of the one to blame, Stage where it showed.
	Kernel string `json:"kernel"`
	Stage  string `json:"stage"`
	// Reason is a line, Console the end of what the guest said.
	Reason  string `json:"reason"`
	Console string `json:"console"`

	err error
}

func (f *Fault) Error() string {
	if f.Stage == stageBoot {
		return "the kernel does not boot: " + f.Reason
	}
	return "the workload fails on the kernel: " + f.Reason
}

// Unwrap gives the error that it was made of, where it was met in this process.
func (f *Fault) Unwrap() error { return f.err }

// Detail implements graph.Detailed.
func (f *Fault) Detail() any { return f }

// faultOf distinguishes a faulty kernel from a faulty bench; nil for the latter, and where it was ctx that ended the run.
func faultOf(ctx context.Context, err error) *Fault {
	if err == nil || ctx.Err() != nil {
		return nil
	}
	var boot *vm.BootError
	if errors.As(err, &boot) {
		reason := string(boot.Reason)
		if boot.Said != "" {
			reason += ": " + boot.Said
		}
		return &Fault{Stage: stageBoot, Reason: reason, Console: boot.Tail, err: err}
	}
	var failed *workload.FailedError
	if errors.As(err, &failed) {
		reason := fmt.Sprintf("%s failed: %s", failed.Part, lastLine(failed.Output))
		return &Fault{Stage: stageWorkload, Reason: reason, Console: failed.Output, err: err}
	}
	return nil
}

// tries adds a step that a kernel has to stand, and that leaves nothing to go on
// with where it does not.
func (b *builder) tries(name, kind, kernel string, run func(ctx context.Context, kernel string, w *graph.Work) error) {
	b.add(name, kind, b.bench(), map[string]string{"kernel": kernel}, emulate, func(ctx context.Context, w *graph.Work) error {
		err := run(ctx, w.Need("kernel"), w)
		if fault := faultOf(ctx, err); fault != nil {
			fault.Kernel = w.Need("kernel")
			return fault
		}
		return err
	})
}

// faults parts the error of a run: the kernels that are to blame, and the rest.
func faults(err error) (found []Fault, rest error) {
	var others []error
	for _, one := range parts(err) {
		var step *graph.StepError
		var fault Fault
		if errors.As(one, &step) && step.Detail != nil && json.Unmarshal(step.Detail, &fault) == nil && fault.Kernel != "" {
			found = append(found, fault)
		} else {
			others = append(others, one)
		}
	}
	return found, errors.Join(others...)
}

// parts are the errors that were joined to one.
func parts(err error) []error {
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		return slices.DeleteFunc([]error{err}, func(err error) bool { return err == nil })
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, parts(one)...)
	}
	return all
}

// blame notes a candidate that failed. Where the fault was met by a kernel on
// the way to it, that one is noted.
func (p *Pipeline) blame(fault Fault) (Candidate, error) {
	manifest, err := build.ReadManifest(fault.Kernel)
	if err != nil {
		return Candidate{}, err
	}
	candidate := p.candidate(manifest, fault.Kernel)
	candidate.Outcome, candidate.Reason, candidate.Console = Failed, fault.Error(), fault.Console
	if manifest.Variant == build.Instrumented || manifest.Variant == build.Traced {
		candidate.Reason = fmt.Sprintf("%s (the %s kernel, which the candidate is made by)", candidate.Reason, manifest.Variant)
	}
	if before, err := p.Candidates.Get(candidate.Name, candidate.ID); err == nil {
		candidate.Made, candidate.Published = before.Made, before.Published
	}
	return candidate, p.Candidates.Put(candidate)
}

// complaint is the line of a compiler's or linker's words that says most.
func complaint(text string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "error:") || strings.Contains(line, "undefined reference") {
			return strings.TrimSpace(line)
		}
	}
	return lastLine(text)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
