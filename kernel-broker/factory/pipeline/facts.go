// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
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
	facts, err := p.facts(w)
	if err != nil {
		return err
	}
	made, err := kernelreport.Make(facts)
	if err != nil {
		return err
	}
	w.Say("%s: %s", made.Figures.Verdict.Outcome, made.Figures.Verdict.Reason)
	for _, gain := range made.Figures.Verdict.Gains {
		w.Say("%s", gain.Words())
	}
	return writeJSON(filepath.Join(w.Dir, verdictFile), made.Figures.Verdict)
}

// report writes the page and its JSON.
func (p *Pipeline) report(_ context.Context, w *graph.Work) error {
	facts, err := p.facts(w)
	if err != nil {
		return err
	}
	made, err := kernelreport.Make(facts)
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
			measured, err := ReadMeasured(w.Need(measuredAs(name, data)))
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

// ReadMeasured reads what a Bench left in a folder.
func ReadMeasured(dir string) (Measured, error) {
	var measured Measured
	err := readJSON(filepath.Join(dir, MeasuredFile), &measured)
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
