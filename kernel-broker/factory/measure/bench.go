// SPDX-License-Identifier: Apache-2.0

// Package measure counts what a kernel does for a workload. The workload runs
// in a guest whose clock counts instructions, and the plugin kbcount (in C, in
// the folder plugin) counts what is executed between the workload's markers,
// apart for user and kernel.
//
// The result are samples: figures per operation for each region of the
// workload. On one CPU and without a disk a run repeats to the instruction, so
// it is made once and says that it is exact; else it is made several times.
//
// Instructions are not time. Mispredictions and misses of caches and translation
// buffers are a model's, and have luck of the code's layout in them; the models of
// data take the host up to a third more processor time. The method itself costs
// the guest one instruction for each marker and nothing else: it does not know
// that it is counted, since its clock does not move while the plugin works.
package measure

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Kernel is what is measured: a folder as the factory leaves it, with bzImage
// and perhaps modules.
type Kernel struct {
	Name string
	Dir  string
}

func (k Kernel) image() string   { return filepath.Join(k.Dir, "bzImage") }
func (k Kernel) modules() string { return filepath.Join(k.Dir, "modules") }

type Bench struct {
	// Plugin is kbcount.so.
	Plugin string
	Places workload.Places
	// Console gets what the guests print; may be nil.
	Console io.Writer
}

// repetitions of a workload that does not repeat exactly.
const repetitions = 5

// Files that the plugin leaves in a run's folder.
const (
	countsFile    = "counts.json"
	runTraceFile  = "run.trace"
	workTraceFile = "work.trace"
	branchesFile  = "branches"
)

// Measure runs the workload and counts. Errors tell what went wrong: a
// *vm.BootError is the kernel's, a *workload.FailedError the workload's on it.
func (b Bench) Measure(ctx context.Context, k Kernel, w workload.Workload, p workload.Parameters, dir string) (Measurement, error) {
	m := Measurement{Kernel: k.Name, Workload: w.Name}
	repeats := 1
	if !w.Exact() {
		repeats = repetitions
	}
	for i := range repeats {
		place := filepath.Join(dir, fmt.Sprintf("run%d", i+1))
		regions, mitigations, err := b.count(ctx, k, w, p, place)
		if err != nil {
			return Measurement{}, err
		}
		m.Mitigations = mitigations
		m.Runs = append(m.Runs, regions)
	}
	err := m.samples(w, p)
	return m, err
}

func (b Bench) count(ctx context.Context, k Kernel, w workload.Workload, p workload.Parameters, dir string) ([]Region, []string, error) {
	args := []string{"out=" + countsFile, "data=1"}
	_, outcome, err := b.Run(ctx, k, w, p, Options{Exact: w.Counted(), Plugin: args}, dir)
	if err != nil {
		return nil, nil, err
	}
	regions, err := readCounts(filepath.Join(dir, countsFile), outcome.Regions)
	if err != nil {
		return nil, nil, fmt.Errorf("workload %q on kernel %q: %w", w.Name, k.Name, err)
	}
	return regions, outcome.Mitigations, nil
}

// Trace runs the workload with its training parameters and notes which code of
// the kernel ran: all in the first file, "start end" in hex a line, and what
// ran between the workload's markers in the second.
func (b Bench) Trace(ctx context.Context, k Kernel, w workload.Workload, dir string) (whole, work string, err error) {
	args := []string{"out=" + countsFile, "trace=" + runTraceFile, "regiontrace=" + workTraceFile}
	if _, _, err := b.Run(ctx, k, w, w.Train, Options{Exact: w.Counted(), Linked: true, Plugin: args}, dir); err != nil {
		return "", "", err
	}
	return filepath.Join(dir, runTraceFile), filepath.Join(dir, workTraceFile), nil
}

// Branches runs the workload with its training parameters, and notes each branch
// of the kernel that was taken between the workload's markers (plugin/flow.h).
// Those through thunks, in the range of these addresses, lead from their caller to where they led.
func (b Bench) Branches(ctx context.Context, k Kernel, w workload.Workload, thunks [2]uint64, dir string) (string, error) {
	args := []string{"out=" + countsFile, "branches=" + branchesFile}
	if thunks[0] < thunks[1] {
		args = append(args, fmt.Sprintf("thunks=%x-%x", thunks[0], thunks[1]))
	}
	if _, _, err := b.Run(ctx, k, w, w.Train, Options{Exact: w.Counted(), Linked: true, Plugin: args}, dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, branchesFile), nil
}

type Options struct {
	// Exact guests repeat, are slower, and have one CPU.
	Exact bool
	// Linked has code at the addresses of its link map, as in exact guests.
	Linked bool
	// Plugin has arguments for kbcount; none is without it.
	Plugin []string
	Hooks  workload.Hooks
	// KVM and Every are as in vm.Guest.
	KVM   bool
	Every time.Duration
	// CPUs are the workload's own number if 0.
	CPUs int
}

// Run runs the workload on the kernel, and leaves in dir/files what the guest
// left below /out.
func (b Bench) Run(ctx context.Context, k Kernel, w workload.Workload, p workload.Parameters, o Options, dir string) (vm.Result, workload.Outcome, error) {
	if o.CPUs > 0 {
		w.CPUs = o.CPUs
	}
	failed := func(err error) (vm.Result, workload.Outcome, error) {
		return vm.Result{}, workload.Outcome{}, fmt.Errorf("workload %q on kernel %q: %w", w.Name, k.Name, err)
	}
	root, err := w.Root(ctx, b.Places, p, k.modules(), o.Hooks)
	if err != nil {
		return failed(err)
	}
	initrd := filepath.Join(dir, "initrd")
	if err := vm.BuildInitrd(ctx, root, initrd); err != nil {
		return failed(err)
	}
	guest := w.Guest()
	guest.Kernel, guest.Initrd, guest.Exact, guest.Console = k.image(), initrd, o.Exact, b.Console
	guest.KVM, guest.Every = o.KVM, o.Every
	if o.Linked && !o.Exact {
		guest.Arguments = []string{"nokaslr", "norandmaps"}
	}
	if len(o.Plugin) > 0 {
		guest.Plugins = []vm.Plugin{{Path: b.Plugin, Args: o.Plugin}}
	}
	result, err := vm.Run(ctx, guest, dir)
	if err = errors.Join(err, os.Remove(initrd)); err != nil {
		return failed(err)
	}
	outcome, err := w.Outcome(result)
	if err != nil {
		return failed(err)
	}
	return result, outcome, nil
}

// Inputs are what the result of a run depends on besides the kernel, by name:
// values and digests.
func (b Bench) Inputs(ctx context.Context, w workload.Workload) (map[string]string, error) {
	said, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("workload %q: %w", w.Name, err)
	}
	inputs := map[string]string{"workload": digest.Of(said)}
	plugin, err := os.ReadFile(b.Plugin)
	if err != nil {
		return nil, fmt.Errorf("plugin: %w", err)
	}
	inputs["plugin"] = digest.Of(plugin)
	root, err := w.Root(ctx, b.Places, w.Test, "", workload.Hooks{})
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	if err := vm.WriteInitrd(ctx, root, hash); err != nil {
		return nil, fmt.Errorf("workload %q: %w", w.Name, err)
	}
	inputs["guest"] = digest.Text(hash)
	guest := w.Guest()
	guest.Exact = w.Counted()
	inputs["machine"], err = vm.Describe(ctx, guest)
	return inputs, err
}
