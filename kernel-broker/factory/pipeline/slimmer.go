// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
)

// Tracer is Slimmer by package slim.
type Tracer struct {
	Factory  Factory
	Emulator Emulator
	// Keep is the folder of keep-lists, Nodes are files of what nodes report and
	// Aliases is a modules.alias; the last two may be empty.
	Keep, Aliases string
	Nodes         []string
	// Traces of jobs, whose kernel functions count as the workload's.
	Traces []slim.JobTrace
	// Answers is a folder that outlives a killed slimming.
	Answers string
}

// mostKernels bounds the kernels that a bad guess can cost.
const mostKernels = 24

// Inputs implements Slimmer: what is tried is compiled and run as the kernel
// itself is.
func (t Tracer) Inputs() (Inputs, error) {
	all := Inputs{"warmest": slim.Warmest.String(), "limit": fmt.Sprint(mostKernels), "recipe keeps": strings.Join(t.Factory.Plan.Recipe.Keep, " ")}
	for prefix, of := range map[string]func() (Inputs, error){
		"bench ":   t.Emulator.Inputs,
		"config ":  func() (Inputs, error) { return t.Factory.ConfigureInputs(build.Plain) },
		"compile ": func() (Inputs, error) { return t.Factory.CompileInputs(build.Plain) },
	} {
		inputs, err := of()
		if err != nil {
			return nil, err
		}
		for name, value := range inputs {
			all[prefix+name] = value
		}
	}
	var err error
	if all["keep-lists"], err = graph.TreeDigest(t.Keep); err != nil {
		return nil, fmt.Errorf("keep-lists: %w", err)
	}
	if t.Aliases != "" {
		if all["aliases"], err = graph.FileDigest(t.Aliases); err != nil {
			return nil, fmt.Errorf("aliases: %w", err)
		}
	}
	if len(t.Nodes) > 0 {
		// What the nodes say counts, and not in which files or order.
		nodes, err := slim.ReadNodeFiles(t.Nodes)
		if err != nil {
			return nil, err
		}
		if all["nodes"], err = graph.ValueDigest(nodes); err != nil {
			return nil, err
		}
	}
	return all, t.addRuns(all)
}

// runInput begins the names of inputs that are traces of jobs.
const runInput = "run "

// addRuns adds an input for each run. Without any a build has the same inputs as
// before runs existed, and finds the same results.
func (t Tracer) addRuns(all Inputs) error {
	for _, trace := range t.Traces {
		digest, err := graph.ValueDigest(trace)
		if err != nil {
			return err
		}
		all[runInput+fmt.Sprint(trace.Run)] = digest
	}
	return nil
}

func (t Tracer) Slim(ctx context.Context, from Slimming, w *graph.Work) error {
	source, err := t.Factory.builder(w).Fetch(ctx, t.Factory.Plan)
	if err != nil {
		return err
	}
	config, err := kconfig.ReadConfig(filepath.Join(from.Kernel, build.ConfigFile))
	if err != nil {
		return err
	}
	manifest, err := build.ReadManifest(from.Kernel)
	if err != nil {
		return err
	}
	files := slim.Files{
		Tree: source.Tree, Config: config, LinkMap: filepath.Join(from.Kernel, build.LinkMapFile),
		Trace: filepath.Join(from.Trace, runTrace), RegionTrace: filepath.Join(from.Trace, workTrace),
		Keep: t.Keep, KeepToo: t.Factory.Plan.Recipe.Keep, Nodes: t.Nodes, Aliases: t.Aliases,
	}
	for _, option := range t.Factory.Plan.Merged.Options {
		files.Asked = append(files.Asked, option.Symbol)
	}
	facts, missing, err := files.Read()
	if err != nil {
		return err
	}
	runs, err := files.AddRuns(&facts, t.Traces, filepath.Join(from.Kernel, build.SystemMapFile))
	if err != nil {
		return err
	}
	for _, run := range runs {
		w.Say("%s", run)
	}
	input := slim.Input{
		Name: t.Factory.Plan.Recipe.Name, Facts: facts, Missing: missing, Runs: runs, Limit: mostKernels,
		Kernels: &trials{Tracer: t, work: w}, Log: slog.New(slog.NewTextHandler(w.Log, nil)),
	}
	if manifest.Sections != nil {
		input.TextBefore = manifest.Sections.All()
	}
	outcome, err := t.search(ctx, input)
	if err != nil {
		return err
	}
	functions, err := files.Functions(filepath.Join(from.Kernel, build.SystemMapFile))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(w.Dir, slimFile), outcome.Fragment(), 0o644),
		atomicfile.WriteJSON(filepath.Join(w.Dir, outcomeFile), outcome, 0o644),
		atomicfile.WriteJSON(filepath.Join(w.Dir, objectsOf), functions, 0o644))
}

// search keeps its answers under the digest of all that they depend on, so that
// a killed slimming goes on where it was.
func (t Tracer) search(ctx context.Context, input slim.Input) (slim.Outcome, error) {
	inputs, err := t.Inputs()
	if err != nil {
		return slim.Outcome{}, err
	}
	for _, name := range []string{"keep-lists", "nodes", "aliases", "limit", "warmest", "recipe keeps"} {
		delete(inputs, name) // they change what is asked, and no answer
	}
	maps.DeleteFunc(inputs, func(name, _ string) bool { return strings.HasPrefix(name, runInput) }) // so do these
	base, err := graph.ValueDigest(inputs)
	if err != nil {
		return slim.Outcome{}, err
	}
	input.Answers = slim.Answers(filepath.Join(t.Answers, input.Name+"-"+base[:12]))
	return slim.Slim(ctx, input)
}

// trials builds and tries kernels with options off.
type trials struct {
	Tracer
	work *graph.Work
}

// configure writes the configuration into dir.
func (t *trials) configure(ctx context.Context, off []string, dir string) error {
	var text strings.Builder
	text.WriteString("# Options that slimming tries to do without.\n")
	for _, symbol := range slices.Sorted(slices.Values(off)) {
		fmt.Fprintf(&text, "# CONFIG_%s is not set\n", symbol)
	}
	fragment := filepath.Join(dir, "off.config")
	if err := os.WriteFile(fragment, []byte(text.String()), 0o644); err != nil {
		return err
	}
	input := build.ConfigureInput{Variant: build.Plain, Slim: fragment}
	return t.Factory.builder(t.work).Configure(ctx, t.Factory.Plan, input, dir)
}

func (t *trials) Configure(ctx context.Context, off []string) (config kconfig.Config, err error) {
	err = aside(t.work, func(dir string) error {
		if err := t.configure(ctx, off, dir); err != nil {
			return err
		}
		read, err := kconfig.ReadConfig(filepath.Join(dir, build.ConfigFile))
		config = read
		return err
	})
	return config, err
}

func (t *trials) Try(ctx context.Context, off []string) (answer slim.Answer, err error) {
	err = aside(t.work, func(dir string) error {
		if err := t.configure(ctx, off, dir); err != nil {
			return err
		}
		kernel := filepath.Join(dir, "kernel")
		input := build.CompileInput{Variant: build.Plain, Config: filepath.Join(dir, build.ConfigFile)}
		watch := build.Watch{Log: t.work.Log, Units: t.work.Units}
		manifest, err := t.Factory.builder(t.work).Compile(ctx, t.Factory.Plan, input, watch, kernel)
		if broken := brokenBuild(ctx, err); broken != nil {
			answer = slim.Answer{Stage: "build", Reason: complaint(broken.Tail)}
			return nil
		}
		if err != nil {
			return err
		}
		if manifest.Sections != nil {
			answer.Text = manifest.Sections.All()
		}
		return t.run(ctx, kernel, dir, &answer)
	})
	return answer, err
}

// brokenBuild is a configuration that does not compile; nil where something else
// ended the build.
func brokenBuild(ctx context.Context, err error) *build.BuildError {
	var broken *build.BuildError
	if ctx.Err() != nil || diskfull.Is(err) || !errors.As(err, &broken) {
		return nil
	}
	return broken
}

// run boots the kernel and puts it to work with the training data.
func (t *trials) run(ctx context.Context, kernel, dir string, answer *slim.Answer) error {
	e := t.Emulator
	_, _, err := e.at(t.work).Run(ctx, measure.Kernel{Name: "tried", Dir: kernel}, e.Load, e.Load.Train, measure.Options{}, filepath.Join(dir, "run"))
	if fault := faultOf(ctx, err); fault != nil {
		answer.Stage, answer.Reason = fault.Stage, fault.Reason
		return nil
	}
	answer.Works = err == nil
	return err
}
