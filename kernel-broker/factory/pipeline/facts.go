package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/report"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Files of the steps that judge.
const (
	measuredFile = "measured.json"
	verdictFile  = "verdict.json"
	reportFile   = "report.json"
	pageFile     = "report.html"
)

// decide writes the verdict.
func (p *Pipeline) decide(_ context.Context, w *graph.Work) error {
	facts, err := p.facts(w)
	if err != nil {
		return err
	}
	made, err := report.Make(facts)
	if err != nil {
		return err
	}
	w.Say("%s: %s", made.Figures.Verdict.Outcome, made.Figures.Verdict.Reason)
	return writeJSON(filepath.Join(w.Dir, verdictFile), made.Figures.Verdict)
}

// report writes the page and its JSON.
func (p *Pipeline) report(_ context.Context, w *graph.Work) error {
	facts, err := p.facts(w)
	if err != nil {
		return err
	}
	made, err := report.Make(facts)
	if err != nil {
		return err
	}
	return errors.Join(
		writeFile(filepath.Join(w.Dir, reportFile), made.WriteJSON),
		writeFile(filepath.Join(w.Dir, pageFile), made.WriteHTML))
}

// kernelNames are those of all kernels that take part, the subject first.
func (p *Pipeline) kernelNames(w *graph.Work) []string {
	names := []string{p.Recipe.Name}
	for _, name := range []string{kernelPlain, kernelCurrent, kernelStock} {
		if w.Has("kernel-" + name) {
			names = append(names, name)
		}
	}
	return names
}

// facts puts together what the steps before have found out.
func (p *Pipeline) facts(w *graph.Work) (report.Facts, error) {
	workload := p.Bench.Workload()
	facts := report.Facts{
		Subject: p.Recipe.Name, Application: workload.Application, Current: kernelStock, Stock: kernelStock,
		Command: p.Command, Machine: p.Machine, Made: time.Now().UTC().Format(time.RFC3339),
		Workloads: []report.Workload{{Name: workload.Name, Description: workload.Description, Operation: workload.Operation}},
		Applications: []verdict.Application{{
			Name: workload.Application, Test: workload.Test, Kernel: p.Recipe.Name,
		}},
		Required: workload.Required, Rules: p.Rules,
	}
	names := p.kernelNames(w)
	if slices.Contains(names, kernelCurrent) {
		facts.Current = kernelCurrent
	}
	if slices.Contains(names, kernelPlain) {
		facts.Slim = kernelPlain
	}
	for _, name := range names {
		kernel, err := p.kernel(w, name)
		if err != nil {
			return report.Facts{}, err
		}
		for _, data := range []Data{Test, Train} {
			if !w.Has(measuredAs(name, data)) {
				continue
			}
			measured, err := readMeasured(w.Need(measuredAs(name, data)))
			if err != nil {
				return report.Facts{}, err
			}
			takePart(&facts, name, measured)
			kernel.Mitigations = measured.Mitigations
		}
		facts.Kernels = append(facts.Kernels, kernel)
	}
	var err error
	if facts.Symbols, err = p.symbols(w); err != nil {
		return report.Facts{}, err
	}
	return facts, p.options(w, &facts)
}

// takePart adds what was measured of a kernel, under its name here.
func takePart(facts *report.Facts, name string, measured Measured) {
	for _, sample := range measured.Samples {
		sample.Kernel = name
		facts.Samples = append(facts.Samples, sample)
	}
	for _, check := range measured.Checks {
		check.Kernel = name
		facts.Checks = append(facts.Checks, check)
	}
}

// kernel describes one by its manifest.
func (p *Pipeline) kernel(w *graph.Work, name string) (report.Kernel, error) {
	dir := w.Need("kernel-" + name)
	manifest, err := factory.ReadManifest(dir)
	if err != nil {
		return report.Kernel{}, err
	}
	kernel := report.Kernel{
		Kernel: verdict.Kernel{Name: name}, Title: p.title(name), Release: manifest.Release, BuildID: manifest.BuildID,
		Size:       report.Size{Image: manifest.Image.Size},
		Provenance: provenance(manifest),
	}
	if name == p.Recipe.Name && (manifest.Profile != nil || p.Recipe.Slimming != "") || name == kernelPlain && p.Recipe.Slimming != "" {
		kernel.Trained = []verdict.Run{p.Bench.Workload().Train}
	}
	if s := manifest.Sections; s != nil {
		kernel.Size.FunctionText = s.All()
		kernel.Size.Sections = []report.Section{{Name: ".text", Bytes: s.Text}, {Name: ".text.hot", Bytes: s.Hot}, {Name: ".text.unlikely", Bytes: s.Unlikely}}
	}
	config, err := factory.ReadConfig(filepath.Join(dir, factory.ConfigFile))
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

func (p *Pipeline) title(name string) string {
	switch name {
	case kernelStock:
		return "the distribution's own kernel"
	case kernelPlain:
		return "slim, plain -O2"
	case kernelCurrent:
		return "what jobs get today"
	}
	return p.Recipe.Description
}

func provenance(m factory.Manifest) report.Provenance {
	made := report.Provenance{
		Source:       report.Input{Name: m.Source.Package + " " + m.Source.Version, Digest: m.Source.Digest},
		ConfigDigest: m.Config.Digest, Flags: m.Flags, ImageDigest: m.Image.Digest, Builder: m.Builder, InputsKey: m.InputsKey,
	}
	if m.Compiler != nil {
		made.Compiler, made.Version = m.Compiler.Name, m.Compiler.Version
	}
	for _, part := range m.Fragments {
		made.Fragments = append(made.Fragments, report.Input(part))
	}
	for _, patch := range m.Source.Patches {
		made.Patches = append(made.Patches, report.Patch{Name: patch.Name, Digest: patch.Digest, Upstream: patch.Upstream})
	}
	if m.Profile != nil {
		made.ProfileDigest = m.Profile.Digest
	}
	return made
}

// symbols tells which functions of the kernel ran with the training data.
func (p *Pipeline) symbols(w *graph.Work) (*report.Symbols, error) {
	functions, err := readWith(filepath.Join(w.Need("kernel-"+p.Recipe.Name), factory.SystemMapFile), slim.ReadSymbols)
	if err != nil {
		return nil, err
	}
	run, err := readWith(filepath.Join(w.Need("trace"), runTrace), slim.ReadTrace)
	if err != nil {
		return nil, err
	}
	symbols := make([]report.Symbol, 0, len(functions))
	for _, f := range functions {
		if f.Name == "_etext" {
			break // what follows is thrown away after the start
		}
		symbols = append(symbols, report.Symbol{Name: f.Name, Bytes: int64(f.End - f.Begin), Ran: int64(run.In(f.Begin, f.End))})
	}
	return report.PartSymbols(symbols), nil
}

// options adds what slimming decided.
func (p *Pipeline) options(w *graph.Work, facts *report.Facts) error {
	if !w.Has("slim") {
		return nil
	}
	return readJSON(filepath.Join(w.Need("slim"), optionsFile), &facts.Options)
}

func readMeasured(dir string) (Measured, error) {
	var measured Measured
	err := readJSON(filepath.Join(dir, measuredFile), &measured)
	return measured, err
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func readWith[T any](path string, read func(io.Reader) (T, error)) (result T, err error) {
	file, err := os.Open(path)
	if err != nil {
		return result, err
	}
	defer func() { _ = file.Close() }() // only read from
	if result, err = read(file); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return result, err
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func writeFile(path string, fill func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(file), file.Close())
}
