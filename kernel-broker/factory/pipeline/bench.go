// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
)

// Emulator is Bench by package measure, for one workload.
type Emulator struct {
	Machine measure.Bench
	Load    workload.Workload
}

// bootLimit is for a guest that does nothing but start, on a busy machine.
const bootLimit = 20 * time.Minute

// at is the bench with the guest's words in a step's log.
func (e Emulator) at(w *graph.Work) measure.Bench {
	b := e.Machine
	b.Console = w.Log
	return b
}

func (e Emulator) Workload() Workload {
	run := func(p workload.Parameters) verdict.Run {
		return verdict.Run{Workload: e.Load.Name, Seed: p.Seed, Size: p.Size}
	}
	return Workload{Name: e.Load.Name, Application: e.Load.Application, Description: e.Load.Description, Operation: e.Load.Operation, Like: e.Load.Like,
		Train: run(e.Load.Train), Test: run(e.Load.Test), Required: []string{e.Load.Name}, HostClock: !e.Load.Counted(), Unchecked: strings.TrimSpace(e.Load.Check) == ""}
}

func (e Emulator) Inputs() (Inputs, error) { return e.Machine.Inputs(context.Background(), e.Load) }

func (e Emulator) Boot(ctx context.Context, kernel string, w *graph.Work) error {
	manifest, err := build.ReadManifest(kernel)
	if err != nil {
		return err
	}
	return aside(w, func(dir string) error {
		initrd := filepath.Join(dir, "initrd")
		if err := vm.BuildInitrd(ctx, vm.Root{Script: "uname -r >/out/release\n"}, initrd); err != nil {
			return err
		}
		for _, cpus := range []int{1, 2} {
			w.Say("booting with %d of CPU", cpus)
			guest := vm.Guest{Kernel: filepath.Join(kernel, build.ImageFile), Initrd: initrd, CPUs: cpus, Limit: bootLimit, Console: w.Log}
			result, err := vm.Run(ctx, guest, filepath.Join(dir, fmt.Sprintf("cpus%d", cpus)))
			if err != nil {
				return err
			}
			release, err := vm.ReadText(filepath.Join(result.Files, "release"))
			if err != nil {
				return err
			}
			if got := strings.TrimSpace(string(release)); got != manifest.Release {
				return fmt.Errorf("the guest says that it runs %q, the manifest says %q", got, manifest.Release)
			}
			w.Units(cpus, 2)
		}
		return os.WriteFile(filepath.Join(w.Dir, "release"), []byte(manifest.Release+"\n"), 0o644)
	})
}

// Files of a trace, and what they are called beside the step.
const (
	runTrace  = "run.trace"
	workTrace = "work.trace"
)

func (e Emulator) Trace(ctx context.Context, kernel string, w *graph.Work) error {
	return aside(w, func(dir string) error {
		run, work, err := e.at(w).Trace(ctx, measure.Kernel{Name: "traced", Dir: kernel}, e.Load, dir)
		if err != nil {
			return err
		}
		return errors.Join(os.Rename(run, filepath.Join(w.Dir, runTrace)), os.Rename(work, filepath.Join(w.Dir, workTrace)))
	})
}

func (e Emulator) Profile(ctx context.Context, kernel string, w *graph.Work) error {
	objects, err := os.ReadFile(filepath.Join(kernel, objectsFile))
	if err != nil {
		return err
	}
	return aside(w, func(dir string) error {
		hooks := workload.Hooks{Before: pgo.GuestReset, After: pgo.GuestCollect}
		_, _, err := e.at(w).Run(ctx, measure.Kernel{Name: "instrumented", Dir: kernel}, e.Load, e.Load.Train, measure.Options{Hooks: hooks}, dir)
		if err != nil {
			return err
		}
		profile, err := pgo.Load(filepath.Join(dir, "files", pgo.GuestFolder))
		if err != nil {
			return err
		}
		if profile, err = profile.Below(strings.TrimSpace(string(objects))); err != nil {
			return err
		}
		w.Say("%d objects have counters, %d of them ran", len(profile.Files), len(profile.Ran()))
		return profile.WriteFor(filepath.Join(w.Dir, profileDir))
	})
}

func (e Emulator) Measure(ctx context.Context, kernel string, data Data, w *graph.Work) error {
	parameters := e.Load.Test
	if data == Train {
		parameters = e.Load.Train
	}
	return aside(w, func(dir string) error {
		found, err := e.at(w).Measure(ctx, measure.Kernel{Name: "measured", Dir: kernel}, e.Load, parameters, dir)
		check := verdict.CheckRun{Workload: e.Load.Name, Passed: true}
		console := ""
		if fault := faultOf(ctx, err); fault != nil {
			check.Passed, check.Detail, console = false, fault.Reason, fault.Console
			w.Say("%v", fault)
		} else if err != nil {
			return err
		}
		return atomicfile.WriteJSON(filepath.Join(w.Dir, MeasuredFile), Measured{
			Samples: found.Samples, Checks: []verdict.CheckRun{check}, Mitigations: found.Mitigations, Console: console,
		}, 0o644)
	})
}

// aside gives a run a folder that is no part of the result.
func aside(w *graph.Work, run func(dir string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(w.Dir), "run-")
	if err != nil {
		return err
	}
	return errors.Join(run(dir), os.RemoveAll(dir))
}

// Failed is the outcome of a kernel that does not do what it has to. No verdict
// was asked for.
const Failed kb.Outcome = "failed"

// Stages at which a kernel can show its fault.
const (
	stageBuild    = "build"
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
	switch f.Stage {
	case stageBuild:
		return "there is no such kernel: " + f.Reason
	case stageBoot:
		return "the kernel does not boot: " + f.Reason
	}
	return "the workload fails on the kernel: " + f.Reason
}

// Unwrap gives the error that it was made of, where it was met in this process.
func (f *Fault) Unwrap() error { return f.err }

func (f *Fault) Detail() any { return f }

// faultOf distinguishes a faulty kernel from a faulty bench; nil for the latter, where it was ctx that ended the run,
// and where this host had no room for what the guest left.
func faultOf(ctx context.Context, err error) *Fault {
	if err == nil || ctx.Err() != nil || diskfull.Is(err) {
		return nil
	}
	var fault *Fault
	if errors.As(err, &fault) {
		return fault
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
	b.add(name, kind, b.bench(), map[string]string{"kernel": kernel}, emulate, steady(b.bench(), b.p.Bench.Inputs, attempt(run)))
}

// attempt names the kernel where it is to blame.
func attempt(run func(ctx context.Context, kernel string, w *graph.Work) error) func(context.Context, *graph.Work) error {
	return func(ctx context.Context, w *graph.Work) error {
		err := run(ctx, w.Need("kernel"), w)
		if fault := faultOf(ctx, err); fault != nil {
			fault.Kernel = w.Need("kernel")
			return fault
		}
		return err
	}
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
