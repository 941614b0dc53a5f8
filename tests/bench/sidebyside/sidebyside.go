// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// SideBySide is kernels under workloads, each under each, in one graph that
// ends in one report. What a build of one of the kernels has done already is
// not done again, nor the other way round.
type SideBySide struct {
	Name  string
	Title string
	// Slim is the recipe that all are compared with, besides stock.
	Slim    string
	Kernels []*pipeline.Pipeline
	Benches []pipeline.Bench
	Command string
	Machine string
	Rules   verdict.Rules
	// Wall is the number of rounds in which wall time is taken too; 0: it is not.
	Wall int
}

// StepSideBySide is the last step; its files are those of Report.Write.
const StepSideBySide = "side-by-side"

// Run does what is left to do and returns the folder of the report.
func (s *SideBySide) Run(ctx context.Context, runner *graph.Runner) (folder string, err error) {
	g, err := s.Graph()
	if err != nil {
		return "", err
	}
	results, err := runner.Run(ctx, s.Name, g, StepSideBySide)
	if err != nil {
		return "", err
	}
	return results[StepSideBySide].Files(), nil
}

// Graph of all builds and measurements.
func (s *SideBySide) Graph() (*graph.Graph, error) {
	if len(s.Kernels) == 0 || len(s.Benches) == 0 {
		return nil, fmt.Errorf("bench %q: it takes a kernel and a workload", s.Name)
	}
	b := &builder{}
	stock := s.Kernels[0].Kernels
	b.add("stock", "", b.inputs(stock.StockInputs(context.Background())), nil, light, stock.Stock)
	kernels := map[string]string{pipeline.KernelStock: "stock"}
	order := make([]string, 0, len(s.Kernels))
	for _, p := range s.Kernels {
		order = append(order, p.Recipe.Name)
		step, err := b.join(p)
		b.err = errors.Join(b.err, err)
		kernels[p.Recipe.Name] = step
	}
	needs := map[string]string{}
	for name, step := range kernels {
		needs["kernel-"+name] = step
	}
	workloads := make([]pipeline.Workload, len(s.Benches))
	for i, bench := range s.Benches {
		workloads[i] = bench.Workload()
		mine := b.inputs(bench.Inputs())
		for _, name := range slices.Sorted(maps.Keys(kernels)) {
			id := measureStep(name, workloads[i].Name)
			b.test(id, kernels[name], bench, mine)
			needs[measuredOn(name, workloads[i].Name)] = id
		}
	}
	for _, bench := range s.Benches {
		if s.Wall > 0 {
			needs[timedOn(bench.Workload().Name)] = b.wall(bench, s.Wall, s.Machine, kernels)
		}
	}
	text, err := graph.ValueDigest(map[string]any{"format": 2, "title": s.Title, "slim": s.Slim, "kernels": order, "workloads": workloads, "rules": s.Rules})
	b.err = errors.Join(b.err, err)
	inputs := pipeline.Inputs{"facts": text, "command": s.Command, "machine": s.Machine}
	b.add(StepSideBySide, "", inputs, needs, light, s.report)
	if b.err != nil {
		return nil, fmt.Errorf("bench %q: %w", s.Name, b.err)
	}
	g, err := graph.New(b.steps...)
	if err != nil {
		return nil, fmt.Errorf("bench %q: %w", s.Name, err)
	}
	return g, nil
}

// builder collects steps and the first error.
type builder struct {
	steps []graph.Step
	err   error
}

var (
	light   = graph.Resources{CPUs: 1, MemoryMiB: 512, Limit: 30 * time.Minute}
	emulate = graph.Resources{CPUs: 1, MemoryMiB: 2048, Limit: 6 * time.Hour}
)

func (b *builder) inputs(inputs pipeline.Inputs, err error) pipeline.Inputs {
	b.err = errors.Join(b.err, err)
	return inputs
}

// add adds a step; kind is empty when it is the name.
func (b *builder) add(name, kind string, inputs pipeline.Inputs, needs map[string]string, resources graph.Resources, run func(context.Context, *graph.Work) error) {
	b.steps = append(b.steps, graph.Step{Name: name, Kind: kind, Inputs: inputs, Needs: needs, Resources: resources, Run: run})
}

// join takes a kernel's steps from its own graph, up to the kernel, under names
// that begin with the recipe's; their kinds, under which results are shared,
// stay.
func (b *builder) join(p *pipeline.Pipeline) (kernel string, err error) {
	g, err := p.Graph()
	if err != nil {
		return "", err
	}
	target := "plain"
	if p.Recipe.Optimisation.Profiled() {
		target = "optimised"
	}
	own := func(name string) string { return p.Recipe.Name + "." + name }
	steps, err := g.Needed(target)
	for _, step := range steps {
		step.Name = own(step.Name)
		needs := map[string]string{}
		for as, need := range step.Needs {
			needs[as] = own(need)
		}
		step.Needs = needs
		step.After = slices.Clone(step.After)
		for i, before := range step.After {
			step.After[i] = own(before)
		}
		b.steps = append(b.steps, step)
	}
	return own(target), err
}

// test adds the test run of a workload on a kernel, as a build of the kernel
// with that workload would do it.
func (b *builder) test(id, kernel string, bench pipeline.Bench, inputs pipeline.Inputs) {
	mine := pipeline.MeasureInputs(pipeline.Test, bench.Workload().Test)
	maps.Copy(mine, inputs)
	b.add(id, "measure", mine, map[string]string{"kernel": kernel}, emulate, func(ctx context.Context, w *graph.Work) error {
		return bench.Measure(ctx, w.Need("kernel"), pipeline.Test, w)
	})
}

func measureStep(kernel, workload string) string {
	return fmt.Sprintf("measure-%s-%s", kernel, workload)
}

func measuredOn(kernel, workload string) string { return "measured-" + kernel + "-on-" + workload }

func (s *SideBySide) report(_ context.Context, w *graph.Work) error {
	facts, err := s.facts(w)
	if err != nil {
		return err
	}
	made, err := Make(facts)
	if err != nil {
		return err
	}
	return made.Write(w.Dir)
}

func (s *SideBySide) facts(w *graph.Work) (kernelreport.Facts, error) {
	facts := kernelreport.Facts{
		Title: s.Title, Stock: pipeline.KernelStock, Slim: s.Slim, Rules: s.Rules,
		Command: s.Command, Machine: s.Machine, Made: time.Now().UTC().Format(time.RFC3339),
	}
	for _, bench := range s.Benches {
		load := bench.Workload()
		facts.Workloads = append(facts.Workloads, kernelreport.Workload{Name: load.Name, Description: load.Description, Operation: load.Operation})
		facts.Applications = append(facts.Applications, verdict.Application{Name: load.Name, Test: load.Test, Kernel: s.madeFor(load)})
	}
	stock, err := s.Kernels[0].Describe(w, pipeline.KernelStock)
	if err != nil {
		return kernelreport.Facts{}, err
	}
	facts.Kernels = append(facts.Kernels, stock)
	for _, p := range s.Kernels {
		kernel, err := p.Describe(w, p.Recipe.Name)
		if err != nil {
			return kernelreport.Facts{}, err
		}
		facts.Kernels = append(facts.Kernels, kernel)
	}
	for i := range facts.Kernels {
		if err := s.measured(w, &facts, &facts.Kernels[i]); err != nil {
			return kernelreport.Facts{}, err
		}
	}
	return facts, s.timed(w, &facts)
}

// measured adds what each workload found out about a kernel. The mitigations
// are the machine's and the kernel's, and so the same under each.
func (s *SideBySide) measured(w *graph.Work, facts *kernelreport.Facts, kernel *kernelreport.Kernel) error {
	for _, bench := range s.Benches {
		measured, err := pipeline.ReadMeasured(w.Need(measuredOn(kernel.Name, bench.Workload().Name)), bench.Workload())
		if err != nil {
			return err
		}
		pipeline.AddMeasured(facts, kernel.Name, measured)
		if measured.Mitigations != nil {
			kernel.Mitigations = measured.Mitigations
		}
	}
	return nil
}

// madeFor finds the kernel that was slimmed or compiled by a workload's run, or else by that of the workload that it is like,
// the first of several.
func (s *SideBySide) madeFor(load pipeline.Workload) string {
	for _, workload := range []string{load.Name, load.Like} {
		for _, p := range s.Kernels {
			if workload != "" && p.Recipe.Workload == workload && (p.Recipe.Optimisation.Profiled() || p.Recipe.Slimming != "") {
				return p.Recipe.Name
			}
		}
	}
	return ""
}
