// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/training"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// Training is what earlier runs said of a kernel, unpacked from the catalog.
type Training struct {
	Dir    string
	Digest string
	training.Facts
	// Same: they are of exactly this source and compiler.
	Same bool
	// SlimmingOnly: this build has its profile from elsewhere.
	SlimmingOnly bool
}

// OpenTraining unpacks the data of the plan's recipe into the cache; nil if it has
// none.
func (f Factory) OpenTraining(ctx context.Context) (*Training, error) {
	return f.openTraining(ctx, false)
}

// OpenSlimming is OpenTraining without the profile, which may be of any compiler:
// which options an application does without is no matter of the compiler.
func (f Factory) OpenSlimming(ctx context.Context) (*Training, error) {
	return f.openTraining(ctx, true)
}

func (f Factory) openTraining(ctx context.Context, slimmingOnly bool) (*Training, error) {
	recipe := f.Plan.Recipe
	fail := func(err error) (*Training, error) {
		return nil, fmt.Errorf("kernel %q: %w: kernelctl kernel build %s --train does without them", recipe.Name, err, recipe.Name)
	}
	if recipe.Training == "" {
		return nil, nil
	}
	made := &Training{Digest: recipe.Training, SlimmingOnly: slimmingOnly}
	file := training.File(f.Builder.Catalog, recipe.Name)
	// A file that changed since it was unpacked is another recipe's.
	is, err := graph.FileDigest(file)
	if err == nil && is != recipe.Training {
		err = fmt.Errorf("%s: the digest is %s, the recipe's key training says %s: %w", file, is, recipe.Training, training.ErrDamaged)
	}
	if err != nil {
		return fail(err)
	}
	made.Dir, err = f.Builder.Cache.Entry(ctx, "training", recipe.Training[len("sha256:"):], func() {}, func(dir string) error {
		_, err := training.Unpack(ctx, file, recipe.Training, recipe.Name, dir)
		return err
	})
	if err != nil {
		return fail(err)
	}
	if made.Facts, err = training.ReadFacts(made.Dir); err != nil {
		return fail(err)
	}
	// Unpack compares it for the first recipe only: a copy of that recipe finds the folder in the cache.
	if made.Kernel != recipe.Name {
		return fail(fmt.Errorf("%s: of kernel %q: %w", file, made.Kernel, training.ErrOther))
	}
	wants := map[string]bool{training.Slimming: recipe.Slimming == build.SlimmingTrace, training.Profile: recipe.Optimisation.Profiled() && !slimmingOnly}
	for name, wanted := range wants {
		if _, err := os.Stat(filepath.Join(made.Dir, name)); wanted && err != nil {
			return fail(fmt.Errorf("%s has no %s", file, name))
		}
	}
	source, compiler, err := f.of()
	if err != nil {
		return nil, err
	}
	made.Same, err = made.Facts.Same(source, compiler, recipe.Sampling().Probes)
	if err != nil && (!slimmingOnly || !errors.Is(err, training.ErrOtherProfile)) {
		return fail(err)
	}
	return made, nil
}

// of is all that is said of source and compiler.
func (f Factory) of() (source, compiler string, err error) {
	inputs, err := f.ConfigureInputs(build.Plain)
	return inputs["source"], inputs["compiler"], err
}

// trained adds a step whose result is in the training data.
func (b *builder) trained(step, folder string) string {
	from := filepath.Join(b.p.Training.Dir, folder)
	b.add(step, "trained", Inputs{"training": b.p.Training.Digest, "folder": folder}, nil, light, func(_ context.Context, w *graph.Work) error {
		to := w.Dir
		if folder == training.Profile {
			to = filepath.Join(to, profileDir)
		}
		w.Say("training data: %s", b.p.Training.Workload)
		return os.CopyFS(to, os.DirFS(from))
	})
	return step
}

// save has the last step wait for all that training data are made of.
func (b *builder) save(needs map[string]string) {
	if b.p.Recipe.Slimming == build.SlimmingTrace {
		needs["slim"] = "slim"
	}
	if b.p.Recipe.Optimisation.Profiled() {
		needs["profile"] = "profile"
	}
}

// trainingForm is how training data name the run that they are of.
const trainingForm = "seed %d, size %d"

func trainingText(run verdict.Run) string {
	return run.Workload + ", " + fmt.Sprintf(trainingForm, run.Seed, run.Size)
}

// trainingRun is the way back; false where the data are of something else.
func trainingRun(text string) (verdict.Run, bool) {
	name, rest, _ := strings.Cut(text, ", ")
	run := verdict.Run{Workload: name}
	_, err := fmt.Sscanf(rest, trainingForm, &run.Seed, &run.Size)
	return run, err == nil
}

// trainedOn are the runs of which a kernel's profile and slimming are: the
// workload's own, and the one in the training data, which the workload may have had
// when they were made.
func (p *Pipeline) trainedOn() []verdict.Run {
	runs := []verdict.Run{p.Bench.Workload().Train}
	if p.Training != nil {
		if run, known := trainingRun(p.Training.Workload); known && run != runs[0] {
			runs = append(runs, run)
		}
	}
	return runs
}

// save writes what the runs said, with the report of the kernel: of runs that were
// made here, or of those in the training data that the kernel was built from.
func (p *Pipeline) save(w *graph.Work, made build.Manifest, c Candidate) error {
	if p.isCurrent(c) && c.Outcome == kb.OutcomeNoBenefit {
		return fmt.Errorf("training data of %q: jobs have this kernel already, it was compared with itself, and this cache has no report by which it won: "+
			"--publish never compares it with the distribution's: %w", c.Name, kb.ErrFailedPrecondition)
	}
	run := p.Bench.Workload().Run(Train)
	facts := training.Facts{
		Kernel: p.Recipe.Name, BuildID: made.BuildID, Image: made.Image.Digest,
		Workload: trainingText(run),
	}
	if t := p.Training; t != nil && !t.SlimmingOnly { // the runs are earlier ones
		facts.Source, facts.Compiler, facts.Probes, facts.Workload = t.Source, t.Compiler, t.Probes, t.Workload
	} else if f, ok := p.Kernels.(Factory); ok {
		var err error
		if facts.Source, facts.Compiler, err = f.of(); err != nil {
			return err
		}
		facts.Probes = p.Recipe.Sampling().Probes
	}
	for _, c := range p.Counters {
		facts.Workload = fmt.Sprintf("counters of run %d", c.Run)
	}
	for _, s := range p.Samples {
		facts.Workload = "branches in " + filepath.Base(s.Path)
	}
	folders := map[string]string{training.Report: c.Report}
	if w.Has("slim") {
		folders[training.Slimming] = w.Need("slim")
	}
	if w.Has("profile") {
		folders[training.Profile] = filepath.Join(w.Need("profile"), profileDir)
	}
	sum, err := training.Pack(p.SaveTraining, facts, folders)
	if err != nil {
		return err
	}
	w.Say("training data in %s: training: %s", p.SaveTraining, sum)
	p.saved = sum
	return nil
}

// SavedTraining is the digest of the training data that the build wrote, for the
// recipe's key; empty if it wrote none.
func (p *Pipeline) SavedTraining() string { return p.saved }

// BuildGiven makes a kernel without a run, or finds it in the folder old or in the
// runner's store, and leaves a copy of it in the folder out: with the report, where
// it is the very kernel that was measured. A profile that does not fit this source
// or compiler any more is left out, which say receives.
func (p *Pipeline) BuildGiven(ctx context.Context, runner *graph.Runner, old, out string, say func(format string, args ...any)) (build.Manifest, error) {
	fail := func(err error) (build.Manifest, error) {
		return build.Manifest{}, fmt.Errorf("kernel %q: %w", p.Recipe.Name, err)
	}
	if p.Recipe.NeedsRun() && p.Training == nil {
		return fail(ErrNeedsRun)
	}
	step := stepPlain
	if p.Recipe.Optimisation.Profiled() {
		step = "optimised"
	}
	dir := old
	if _, err := os.Stat(old); err != nil || p.Training != nil {
		if dir, err = p.given(ctx, runner, step); errors.Is(err, pgo.ErrUnfit) && !p.Training.Same {
			say("%s: built without its profile, which is of %s and %s: %v", p.Recipe.Name, p.Training.Source, p.Training.Compiler, err)
			dir, err = p.given(ctx, runner, stepPlain)
		}
		if err != nil {
			return fail(err)
		}
	}
	manifest, err := build.ReadManifest(dir)
	if err != nil {
		return fail(err)
	}
	if err := manifest.Verify(dir); err != nil {
		return fail(fmt.Errorf("damaged in the cache, remove %s: %w", filepath.Dir(dir), err))
	}
	if err := p.publishReport(manifest, out, say); err != nil {
		return fail(err)
	}
	if err := build.PublishKernel(dir, out); err != nil {
		return fail(err)
	}
	return manifest, nil
}

// given is the folder of one step's result.
func (p *Pipeline) given(ctx context.Context, runner *graph.Runner, step string) (string, error) {
	g, err := p.Graph()
	if err != nil {
		return "", err
	}
	results, err := runner.Run(ctx, p.Recipe.Name, g, step)
	if err != nil {
		return "", err
	}
	return results[step].Files(), nil
}

// publishReport copies the report if it is about this very image, or about what the
// recipe made of another version of the source. What is left of another one goes.
func (p *Pipeline) publishReport(made build.Manifest, out string, say func(format string, args ...any)) error {
	if p.Training != nil && !p.Training.SlimmingOnly {
		report := filepath.Join(p.Training.Dir, training.Report)
		text, err := os.ReadFile(filepath.Join(report, reportFile))
		if err != nil {
			return err
		}
		m, err := kernelreport.ReadMeasurement(text, made)
		if err != nil && p.Training.Image == made.Image.Digest {
			return err
		}
		if err == nil {
			if m.MeasuredOn != "" {
				say("%s: its gain was measured on %s, and this is %s; kernelctl kernel build %s measures this kernel", p.Recipe.Name, m.MeasuredOn, made.Source.Version, p.Recipe.Name)
			}
			return build.Publish(report, out, reportFile, pageFile)
		}
		say("%s: not measured: the catalog's report is about %s; kernelctl kernel build %s measures this kernel", p.Recipe.Name, p.reported(made), p.Recipe.Name)
	}
	for _, name := range []string{reportFile, pageFile} {
		if err := os.Remove(filepath.Join(out, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// reported names the kernel that the catalog's report is about by what this one does not have.
func (p *Pipeline) reported(made build.Manifest) string {
	if p.Training.Same {
		return fmt.Sprintf("build id %s, and this is %s", p.Training.BuildID, made.BuildID)
	}
	return fmt.Sprintf("%s by %s", p.Training.Source, p.Training.Compiler)
}

// traced and counted are the runs' parts by what they went into.
func (p *Pipeline) traced() []build.RunPart {
	var parts []build.RunPart
	for _, trace := range p.Traces {
		for _, result := range trace.Results {
			parts = append(parts, build.RunPart{Run: trace.Run, Node: result.Node, Use: build.RunForSlimming, Digest: result.Digest})
		}
	}
	return parts
}

func (p *Pipeline) counted() ([]build.RunPart, error) {
	var parts []build.RunPart
	for _, c := range p.Counters {
		digest, err := graph.FileDigest(c.Path)
		if err != nil {
			return nil, err
		}
		parts = append(parts, build.RunPart{Run: c.Run, Node: c.Node, Use: build.RunForProfile, Digest: digest})
	}
	return parts, nil
}

// instrumentedBy is the command that makes the kernel to count on for this build:
// what jobs used is part of its configuration.
func (p *Pipeline) instrumentedBy() string {
	command := "kernelctl kernel build " + p.Recipe.Name + " --instrumented"
	if runs := p.TracedRuns(); len(runs) > 0 {
		command += " --from-run " + strings.Join(runs, ",")
	}
	return command
}

// TracedRuns are the numbers of the runs by which the build is slimmed: counters of
// its instrumented kernel belong to them.
func (p *Pipeline) TracedRuns() []string {
	var runs []string
	for _, trace := range p.Traces {
		runs = append(runs, fmt.Sprint(trace.Run))
	}
	return runs
}

// InstrumentedStep is the step of which the kernel that counts is published.
func (p *Pipeline) InstrumentedStep() string {
	if len(p.Traces) > 0 {
		return nameOf(string(build.Instrumented))
	}
	return string(build.Instrumented)
}

// named is the step of which a candidate is published: where it was made of runs,
// one that says so in its manifest.
func (b *builder) named(candidate string) string {
	parts, err := b.p.counted()
	b.err = errors.Join(b.err, err)
	parts = append(b.p.traced(), parts...)
	if len(parts) == 0 {
		return candidate
	}
	return b.name(candidate, parts)
}

// name adds a step that names runs in a kernel's manifest. It is a step of its own:
// the kernel is compiled for what it is, and not for where that comes from, so that
// two runs of jobs that do the same share it.
func (b *builder) name(step string, parts []build.RunPart) string {
	text, err := json.Marshal(parts)
	b.err = errors.Join(b.err, err)
	b.add(nameOf(step), "of-runs", Inputs{"runs": string(text)}, map[string]string{"kernel": step}, light, func(_ context.Context, w *graph.Work) error {
		manifest, err := build.ReadManifest(w.Need("kernel"))
		if err != nil {
			return err
		}
		manifest.Runs = parts
		return errors.Join(os.CopyFS(w.Dir, os.DirFS(w.Need("kernel"))), manifest.Write(w.Dir))
	})
	return nameOf(step)
}

func nameOf(step string) string { return step + "-of-runs" }
