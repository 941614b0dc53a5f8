// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// Files of the steps that judge.
const (
	MeasuredFile = "measured.json"
	verdictFile  = "verdict.json"
	reportFile   = "report.json"
	pageFile     = "report.html"
)

// decide writes the verdict.
func (p *Pipeline) decide(_ context.Context, w *graph.Work) error {
	made, err := p.reportOf(w)
	if err != nil {
		return err
	}
	w.Say("%s: %s", made.Figures.Verdict.Outcome, made.Figures.Verdict.Reason)
	for _, gain := range made.Figures.Verdict.Gains {
		w.Say("%s", gain.Words())
	}
	return atomicfile.WriteJSON(filepath.Join(w.Dir, verdictFile), made.Figures.Verdict, 0o644)
}

// report writes the page and its JSON.
func (p *Pipeline) report(_ context.Context, w *graph.Work) error {
	made, err := p.reportOf(w)
	if err != nil {
		return err
	}
	return errors.Join(
		writeFile(filepath.Join(w.Dir, reportFile), made.WriteJSON),
		writeFile(filepath.Join(w.Dir, pageFile), made.WriteHTML))
}

func (p *Pipeline) reportOf(w *graph.Work) (kernelreport.Report, error) {
	facts, err := p.facts(w)
	if err != nil {
		return kernelreport.Report{}, err
	}
	return kernelreport.Make(facts)
}

// kernelNames are those of all kernels that take part, the subject first.
func (p *Pipeline) kernelNames(w *graph.Work) []string {
	names := []string{p.Recipe.Name}
	for _, name := range []string{kernelPlain, kernelCurrent, KernelStock} {
		if w.Has("kernel-" + name) {
			names = append(names, name)
		}
	}
	return names
}

// facts puts together what the steps before have found out.
func (p *Pipeline) facts(w *graph.Work) (kernelreport.Facts, error) {
	workload := p.Bench.Workload()
	facts := kernelreport.Facts{
		Subject: p.Recipe.Name, Application: workload.Application, Current: KernelStock, Stock: KernelStock,
		Command: p.Command, Machine: p.Machine, Made: time.Now().UTC().Format(time.RFC3339),
		Workloads: []kernelreport.Workload{{Name: workload.Name, Description: workload.Description, Operation: workload.Operation}},
		Applications: []verdict.Application{{
			Name: workload.Application, Test: workload.Test, Kernel: p.Recipe.Name,
		}},
		Required: workload.Required, Rules: p.Rules, RunShares: p.RunShares,
	}
	names := p.kernelNames(w)
	if slices.Contains(names, kernelCurrent) {
		facts.Current = kernelCurrent
	}
	if slices.Contains(names, kernelPlain) {
		facts.Slim = kernelPlain
	}
	for _, name := range names {
		kernel, err := p.Describe(w, name)
		if err != nil {
			return kernelreport.Facts{}, err
		}
		for _, data := range []Data{Test, Train} {
			if !w.Has(measuredAs(name, data)) {
				continue
			}
			measured, err := ReadMeasured(w.Need(measuredAs(name, data)), workload)
			if err != nil {
				return kernelreport.Facts{}, err
			}
			AddMeasured(&facts, name, measured)
			kernel.Mitigations = measured.Mitigations
		}
		facts.Kernels = append(facts.Kernels, kernel)
	}
	var err error
	if facts.Symbols, err = p.symbols(w); err != nil {
		return kernelreport.Facts{}, err
	}
	if facts.Cost, err = p.cost(); err != nil {
		return kernelreport.Facts{}, err
	}
	return facts, p.slimmed(w, &facts)
}

// AddMeasured adds what was measured of a kernel, under its name here.
func AddMeasured(facts *kernelreport.Facts, name string, measured Measured) {
	for _, sample := range measured.Samples {
		sample.Kernel = name
		facts.Samples = append(facts.Samples, sample)
	}
	for _, check := range measured.Checks {
		check.Kernel = name
		facts.Checks = append(facts.Checks, check)
	}
}

func (p *Pipeline) title(name string) string {
	switch name {
	case KernelStock:
		return "the distribution's own kernel"
	case kernelPlain:
		return "slim, plain -O2"
	case kernelCurrent:
		return "what jobs get today"
	}
	return p.Recipe.Description
}

// ReadMeasured reads what a Bench left in a folder. What the workload says of its figures and checks is added here:
// results are kept for months, and older ones do not say it.
func ReadMeasured(dir string, of Workload) (Measured, error) {
	var measured Measured
	err := readJSON(filepath.Join(dir, MeasuredFile), &measured)
	for i := range measured.Samples {
		measured.Samples[i].HostClock = of.HostClock
	}
	for i, check := range measured.Checks {
		measured.Checks[i].NotChecked = check.Passed && of.Unchecked
	}
	return measured, err
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := strictjson.Decode(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func writeFile(path string, fill func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(file), file.Close())
}

// Describe a kernel by what lies in its folder.
func (p *Pipeline) Describe(w *graph.Work, name string) (kernelreport.Kernel, error) {
	dir := w.Need("kernel-" + name)
	manifest, err := build.ReadManifest(dir)
	if err != nil {
		return kernelreport.Kernel{}, err
	}
	kernel := kernelreport.Kernel{
		Kernel: verdict.Kernel{Name: name}, Title: p.title(name), Release: manifest.Release, BuildID: manifest.BuildID,
		Size:       kernelreport.Size{Image: manifest.Image.Size},
		Provenance: kernelreport.ProvenanceOf(manifest), Profile: profileUse(manifest.Profile),
	}
	if name == p.Recipe.Name && (manifest.Profile != nil || p.Recipe.Slimming != "") || name == kernelPlain && p.Recipe.Slimming != "" {
		kernel.Trained = p.trainedOn()
	}
	if s := manifest.Sections; s != nil {
		kernel.Size.FunctionText = s.All()
		kernel.Size.Sections = []kernelreport.Section{{Name: ".text", Bytes: s.Text}, {Name: ".text.hot", Bytes: s.Hot}, {Name: ".text.unlikely", Bytes: s.Unlikely}}
	}
	functions, err := slim.ReadFile(filepath.Join(dir, build.SystemMapFile), slim.ReadText)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the distribution's comes without
		return kernelreport.Kernel{}, err
	}
	kernel.Size.Functions = len(functions)
	config, err := kconfig.ReadConfig(filepath.Join(dir, build.ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return kernel, nil // the current one comes without
	}
	for _, value := range config {
		if value == "y" || value == "m" {
			kernel.Size.Options++
		}
	}
	return kernel, err
}

// profileUse is nil for a kernel without a profile.
func profileUse(use *build.Use) *kernelreport.Profile {
	if use == nil {
		return nil
	}
	return &kernelreport.Profile{Objects: use.Objects, Excluded: use.Excluded, Complaints: use.Complaints}
}

// symbols are the functions of the kernel by whether they ran with the training data.
func (p *Pipeline) symbols(w *graph.Work) (*kernelreport.Symbols, error) {
	functions, err := slim.ReadFile(filepath.Join(w.Need("kernel-"+p.Recipe.Name), build.SystemMapFile), slim.ReadText)
	if err != nil {
		return nil, err
	}
	run, err := slim.ReadFile(filepath.Join(w.Need("trace"), runTrace), slim.ReadTrace)
	if err != nil {
		return nil, err
	}
	objects, err := objects(w)
	if err != nil {
		return nil, err
	}
	symbols := make([]kernelreport.Symbol, 0, len(functions))
	for _, f := range functions {
		// What the compiler splits off a function, such as its cold part, is
		// called after it.
		name, _, _ := strings.Cut(f.Name, ".")
		symbols = append(symbols, kernelreport.Symbol{Name: f.Name, Object: objects[name],
			Bytes: int64(f.End - f.Begin), Ran: int64(run.In(f.Begin, f.End))})
	}
	return kernelreport.PartSymbols(symbols), nil
}

// objects by the names of their functions, where slimming found them.
func objects(w *graph.Work) (map[string]string, error) {
	if !w.Has("slim") {
		return nil, nil
	}
	var objects map[string]string
	err := readJSON(filepath.Join(w.Need("slim"), objectsOf), &objects)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return objects, err
}

// slimmed adds what slimming decided, and why.
func (p *Pipeline) slimmed(w *graph.Work, facts *kernelreport.Facts) error {
	if !w.Has("slim") {
		return nil
	}
	var outcome slim.Outcome
	if err := readJSON(filepath.Join(w.Need("slim"), outcomeFile), &outcome); err != nil {
		return err
	}
	facts.Slimming = &kernelreport.Slimming{
		Proposed: outcome.Proposed, Configurations: outcome.Checks, Kernels: outcome.Kernels,
		ObjectsGone: outcome.ObjectsGone, CodeGone: int64(outcome.CodeGone), TextBefore: outcome.TextBefore, TextAfter: outcome.TextAfter,
		Missing: outcome.Missing,
	}
	for _, w := range outcome.Runs {
		facts.Slimming.Runs = append(facts.Slimming.Runs, slimmingRun(w))
	}
	for _, d := range outcome.Decisions() {
		decision := kernelreport.Kept
		if d.Goes {
			decision = kernelreport.Removed
		}
		facts.Options = append(facts.Options, kernelreport.Option{Symbol: d.Symbol, Prompt: d.Prompt, Decision: decision, Reason: d.Reason,
			Objects: len(d.Objects), Bytes: int64(d.Code)})
	}
	return nil
}

func slimmingRun(w slim.RunCoverage) kernelreport.SlimmingRun {
	run := kernelreport.SlimmingRun{Run: w.Run, Releases: w.Releases, Named: w.Named, Found: w.Found, Unknown: w.Unknown,
		Objects: w.Added, Refused: w.Refused, Lacking: w.Lacking}
	for _, result := range w.Results {
		run.Results = append(run.Results, build.Part{Name: result.Node, Digest: result.Digest})
	}
	return run
}

// cost is what the newest build that makes a report notes of its steps: the one
// that asks, or another that works on the same at once and notes the same.
func (p *Pipeline) cost() ([]kernelreport.Cost, error) {
	status, err := p.newest(StepReport)
	if err != nil {
		return nil, err
	}
	plain := []string{"source", "config", stepPlain}
	if p.Recipe.Slimming == build.SlimmingTrace && p.Training == nil {
		// Of two plain kernels the first is compiled in full.
		plain = []string{"source", "traced-config", "traced"}
	}
	var steps []kernelreport.Cost
	for _, step := range status.Steps {
		if step.State == graph.Done {
			steps = append(steps, kernelreport.Cost{Step: step.Name, Seconds: step.Seconds, Bytes: step.Bytes,
				Before: step.Cached, Plain: slices.Contains(plain, step.Name)})
		}
	}
	return steps, nil
}

// newest is the newest run of the kernel's build that has the step; none where
// a step is done by itself.
func (p *Pipeline) newest(step string) (graph.Status, error) {
	runs, err := p.Store.Runs(p.Recipe.Name)
	if err != nil {
		return graph.Status{}, err
	}
	for _, id := range runs {
		status, err := p.Store.Status(p.Recipe.Name, id)
		if err != nil {
			continue // killed before its first line, say: it is not the one that asks
		}
		if _, has := status.Step(step); has {
			return status, nil
		}
	}
	return graph.Status{}, nil
}
