// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/training"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// Options are all that a build of a kernel is made of. As JSON they are what a
// job on another machine makes the same pipeline of.
type Options struct {
	Name    string `json:"name"`
	Catalog string `json:"catalog"`
	Cache   string `json:"cache"`
	Jobs    int    `json:"jobs"`
	// Programs is the folder of the workloads' programs, Plugin the emulator's.
	Programs string `json:"programs"`
	Plugin   string `json:"plugin"`
	// Current is the folder of the kernel in use, or empty.
	Current string `json:"current,omitempty"`
	// Nodes and Aliases describe the hardware for slimming, or are empty.
	Nodes   []string `json:"nodes,omitempty"`
	Aliases string   `json:"aliases,omitempty"`
	// Counters of profiling runs, in place of the workload's own. Traces are files
	// of slim.JobTrace, beside the workload's own trace.
	Counters []Counters `json:"counters,omitempty"`
	Traces   []string   `json:"traces,omitempty"`
	// Samples of branches, in place of the workload's own.
	Samples []Samples `json:"samples,omitempty"`
	// Overrides are fragments laid over those of the recipe.
	Overrides []string `json:"overrides,omitempty"`
	// Without are objects that are compiled without a profile, beside those of the recipe.
	Without []string `json:"without,omitempty"`
	// Plain is the recipe's kernel without slimming and without a profile.
	Plain bool `json:"plain,omitempty"`
	// Train has the workload run although the catalog has training data.
	Train bool `json:"train,omitempty"`
	// SaveTraining is a file for what the runs said, or empty.
	SaveTraining string `json:"save_training,omitempty"`
	// RunShares are the kernel's shares of the application's jobs, by their runs.
	RunShares []verdict.RunShare `json:"run_shares,omitempty"`
	// UnequalMitigations is the site's policy, of verdict.Rules.
	UnequalMitigations bool `json:"unequal_mitigations,omitempty"`
	// Command and Machine stand in the report, Builder in the manifest.
	Command string `json:"command"`
	Machine string `json:"machine"`
	Builder string `json:"builder"`
}

// Open reads the recipe and all that it names, and finds the tools. It changes
// nothing.
func Open(ctx context.Context, o Options) (*Pipeline, error) {
	if o.Jobs < 1 {
		return nil, fmt.Errorf("%d compilers at a time: at least 1", o.Jobs)
	}
	builder := &build.Builder{Catalog: o.Catalog, Cache: build.Cache{Dir: o.Cache}, Jobs: o.Jobs, FindSource: build.FindSource, Name: o.Builder}
	recipe, err := build.LoadRecipe(o.Catalog, o.Name)
	if err != nil {
		return nil, err
	}
	recipe = o.changed(recipe)
	if len(o.Nodes) > 0 && recipe.Slimming != build.SlimmingTrace {
		return nil, fmt.Errorf("kernel %q: --nodes says what slimming keeps, and its recipe does not say slimming: %s: "+
			"add the nodes' drivers to its fragments (kernelctl kernel hardware)", o.Name, build.SlimmingTrace)
	}
	if o.Aliases != "" && len(o.Nodes) == 0 {
		return nil, fmt.Errorf("kernel %q: --aliases says which drivers the devices of --nodes need, and no nodes are given", o.Name)
	}
	plan, err := builder.PlanRecipe(ctx, recipe)
	if err != nil {
		return nil, err
	}
	if len(o.Samples) > 0 && plan.Recipe.Optimisation != build.OptimiseAutoFDO {
		return nil, fmt.Errorf("kernel %q: its recipe takes no branches: it does not say optimisation: %s", o.Name, build.OptimiseAutoFDO)
	}
	if err := builder.CheckPackages(ctx, plan); err != nil {
		return nil, err
	}
	kernels := Factory{Builder: builder, Plan: plan}
	if o.SaveTraining != "" && !plan.Recipe.NeedsRun() {
		return nil, fmt.Errorf("kernel %q: there is no training to save: its recipe has neither slimming nor a profile", o.Name)
	}
	p := &Pipeline{Recipe: plan.Recipe, Kernels: kernels, Current: o.Current, Jobs: o.Jobs, Command: o.Command, Machine: o.Machine,
		Rules: verdict.DefaultRules(), Candidates: CandidatesIn(o.Cache), Store: StoreIn(o.Cache)}
	p.Rules.UnequalMitigations, p.Counters, p.Samples, p.RunShares = o.UnequalMitigations, o.Counters, o.Samples, o.RunShares
	if p.Traces, err = slim.ReadJobTraces(o.Traces); err != nil {
		return nil, fmt.Errorf("kernel %q: %w", o.Name, err)
	}
	p.SaveTraining = o.SaveTraining
	if p.Training, err = o.training(ctx, kernels); err != nil {
		return nil, err
	}
	if plan.Recipe.Workload == "" {
		return p, nil
	}
	load, err := workload.Load(o.Catalog, plan.Recipe.Workload)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: %w", o.Name, err)
	}
	bench := Emulator{Load: load, Machine: measure.Bench{Plugin: o.Plugin, Places: workload.Places{Programs: o.Programs, Cache: o.Cache}}}
	p.Bench = bench
	if plan.Recipe.Slimming == build.SlimmingTrace {
		p.Slimmer = Tracer{Factory: kernels, Emulator: bench, Keep: filepath.Join(o.Catalog, "keep"), Nodes: o.Nodes, Aliases: o.Aliases,
			Traces: p.Traces, Answers: filepath.Join(o.Cache, "slimming")}
	}
	return p, nil
}

// changed is the recipe as these options want it.
func (o Options) changed(recipe build.Recipe) build.Recipe {
	recipe.Overrides = slices.Concat(recipe.Overrides, o.Overrides)
	for _, object := range o.Without {
		recipe.Exclude = append(recipe.Exclude, build.Exclusion{Object: object, Reason: "tried without its profile"})
	}
	if o.Plain {
		if recipe.Optimisation.Profiled() {
			recipe.Optimisation = build.OptimiseO2
		}
		recipe.Slimming, recipe.Training, recipe.Keep, recipe.Exclude = build.SlimmingNone, "", nil, nil
	}
	return recipe
}

// slimmed reports whether the catalog's training data say what slimming removes. They
// know nothing of the nodes for which this build slims.
func (o Options) slimmed() bool {
	return !o.Train && len(o.Nodes)+len(o.Counters)+len(o.Traces) == 0
}

// training is what the catalog has in place of runs. What branches or another compiler's
// profile are not of use for stays: slimming.
func (o Options) training(ctx context.Context, kernels Factory) (*Training, error) {
	if !o.slimmed() {
		return nil, nil
	}
	slims := kernels.Plan.Recipe.Slimming == build.SlimmingTrace
	if len(o.Samples) == 0 {
		made, err := kernels.OpenTraining(ctx)
		if !slims || !errors.Is(err, training.ErrOtherProfile) {
			return made, err
		}
	}
	if !slims {
		return nil, nil
	}
	return kernels.OpenSlimming(ctx)
}

// Complete fills in what was not given: the cache, the tools by the place of this
// program, and the machine. It makes every path absolute, and says which catalog it is.
func (o *Options) Complete(say func(format string, args ...any)) error {
	if o.Cache == "" {
		dir, err := build.DefaultCacheDir()
		if err != nil {
			return err
		}
		o.Cache = dir
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	o.Locate(executable, say)
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	o.Machine = fmt.Sprintf("%s, %d CPUs", host, runtime.NumCPU())
	if err := o.Absolute(); err != nil {
		return err
	}
	say("catalog: %s", o.Catalog)
	return nil
}

// Absolute makes every path one that means the same in another folder.
func (o *Options) Absolute() error {
	var wrong []error
	o.Nodes = slices.Clone(o.Nodes)
	paths := []*string{&o.Catalog, &o.Cache, &o.Programs, &o.Plugin, &o.Current, &o.Aliases, &o.SaveTraining}
	for i := range o.Nodes {
		paths = append(paths, &o.Nodes[i])
	}
	o.Counters = slices.Clone(o.Counters)
	for i := range o.Counters {
		paths = append(paths, &o.Counters[i].Path)
	}
	o.Samples = slices.Clone(o.Samples)
	for i := range o.Samples {
		paths = append(paths, &o.Samples[i].Path)
	}
	o.Traces = slices.Clone(o.Traces)
	for i := range o.Traces {
		paths = append(paths, &o.Traces[i])
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		wrong = append(wrong, err)
		*path = absolute
	}
	return errors.Join(wrong...)
}

// Locate finds what was not given: in the build folder that the executable is in,
// else where make install puts it below the same prefix. A catalog in the current
// folder goes first, unless another user can change it: a recipe's modules run
// commands as whoever builds.
func (o *Options) Locate(executable string, say func(format string, args ...any)) {
	prefix := filepath.Dir(filepath.Dir(executable))
	libexec := filepath.Join(prefix, "libexec", "kernel-broker")
	first := func(value *string, paths ...string) {
		for _, path := range paths {
			if *value != "" {
				return
			}
			if _, err := os.Stat(path); err == nil {
				*value = path
			}
		}
		if *value == "" {
			*value = paths[len(paths)-1] // it is named when it is missed
		}
	}
	first(&o.Plugin, filepath.Join(prefix, "measure", "kbcount.so"), filepath.Join(libexec, "kbcount.so"))
	first(&o.Programs, filepath.Join(prefix, "workloads"), filepath.Join(libexec, "workloads"))
	if o.Catalog == "" {
		own, err := safeopen.OwnTree("catalog")
		switch {
		case err == nil:
			o.Catalog = own
		case !errors.Is(err, fs.ErrNotExist):
			say("./catalog is not used: %v; --catalog ./catalog takes it", err)
		}
	}
	first(&o.Catalog, filepath.Join(prefix, "share", "kernel-broker", "catalog"))
}

// Save writes the options to where a job finds them; the same options always to
// the same file.
func (o Options) Save() (string, error) {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return "", err
	}
	text = append(text, '\n')
	path := filepath.Join(o.Cache, "plans", fmt.Sprintf("%s-%.6x.json", o.Name, sha256.Sum256(text)))
	return path, atomicfile.Write(path, text, 0o644)
}

// LoadOptions reads what Save wrote.
func LoadOptions(path string) (Options, error) {
	var o Options
	if err := readJSON(path, &o); err != nil {
		return Options{}, fmt.Errorf("plan: %w", err)
	}
	return o, nil
}
