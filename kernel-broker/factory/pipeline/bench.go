// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
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

// Workload implements Bench.
func (e Emulator) Workload() Workload {
	run := func(p workload.Parameters) verdict.Run {
		return verdict.Run{Workload: e.Load.Name, Seed: p.Seed, Size: p.Size}
	}
	return Workload{Name: e.Load.Name, Application: e.Load.Application, Description: e.Load.Description, Operation: e.Load.Operation,
		Train: run(e.Load.Train), Test: run(e.Load.Test), Required: []string{e.Load.Name}}
}

// Inputs implements Bench.
func (e Emulator) Inputs() (Inputs, error) { return e.Machine.Inputs(context.Background(), e.Load) }

// Boot implements Bench.
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

// Trace implements Bench.
func (e Emulator) Trace(ctx context.Context, kernel string, w *graph.Work) error {
	return aside(w, func(dir string) error {
		run, work, err := e.at(w).Trace(ctx, measure.Kernel{Name: "traced", Dir: kernel}, e.Load, dir)
		if err != nil {
			return err
		}
		return errors.Join(os.Rename(run, filepath.Join(w.Dir, runTrace)), os.Rename(work, filepath.Join(w.Dir, workTrace)))
	})
}

// Profile implements Bench.
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

// Measure implements Bench.
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
		return writeJSON(filepath.Join(w.Dir, MeasuredFile), Measured{
			Samples: found.Samples, Checks: []verdict.CheckRun{check}, Mitigations: found.Mitigations, Console: console,
		})
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
