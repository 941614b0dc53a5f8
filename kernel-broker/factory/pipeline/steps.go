// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/training"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Names of steps that others look for.
const (
	stepPlain   = "plain"
	StepVerdict = "verdict"
	StepReport  = "report"
	StepPublish = "publish"
)

// Names of kernels in reports. The candidate has its recipe's.
const (
	KernelStock   = "stock"
	kernelPlain   = "slim"
	kernelCurrent = "current"
)

// Pipeline is the build of one kernel.
type Pipeline struct {
	Recipe  build.Recipe
	Kernels Kernels
	Bench   Bench   // nil when the recipe has no workload
	Slimmer Slimmer // nil unless the recipe asks for slimming
	// Counters of profiling runs; without any the workload is run for them.
	Counters []Counters
	// Samples of branches, for a kernel that is optimised by them.
	Samples []Samples
	// Training takes the place of all runs, or of those for slimming; nil: they are made.
	Training *Training
	// SaveTraining is a file for what the runs said, or empty.
	SaveTraining string
	// Traces of profiling runs, which the Slimmer has too.
	Traces []slim.JobTrace
	// RunShares are the kernel's shares of the application's jobs, by their runs.
	RunShares []verdict.RunShare
	// Current is the folder of the kernel that jobs get today, with bzImage
	// and kernel.json; empty: the distribution's own.
	Current string
	// Jobs are compilers at a time.
	Jobs int
	// Facts of the report that nothing here knows.
	Command string
	Machine string
	Rules   verdict.Rules
	// Publisher is called for a kernel that wins; nil leaves it a candidate.
	Publisher Publisher
	// Candidates keeps what became of each kernel.
	Candidates Candidates
	// Store has the results of the steps, and what each cost.
	Store graph.Store

	made    *Candidate // by the effect at the end
	saved   string     // digest of the training data
	results map[string]graph.Result
}

// builder collects steps and the first error.
type builder struct {
	p     *Pipeline
	steps []graph.Step
	err   error

	benchInputs Inputs
}

func (p *Pipeline) Graph() (*graph.Graph, error) {
	b := &builder{p: p}
	candidate := b.kernels()
	if len(p.Recipe.Modules) > 0 {
		b.loads(candidate)
	}
	if p.Bench != nil {
		b.judge(stepPlain, candidate)
	}
	b.publish(candidate, b.named(candidate))
	return b.graph()
}

// kernels adds the way from the source to the candidate, and to the plain kernel that it is compared with.
func (b *builder) kernels() (candidate string) {
	p := b.p
	b.add("source", "", b.inputs(p.Kernels.SourceInputs()), nil, light, p.Kernels.Source)
	slimmed := ""
	if p.Recipe.Slimming == build.SlimmingTrace {
		slimmed = b.slim()
	}
	b.configure("config", build.Plain, slimmed)
	b.compile(stepPlain, build.Plain, "config", "")
	if p.Recipe.Optimisation.Profiled() {
		return b.profile(slimmed)
	}
	return stepPlain
}

func (b *builder) graph() (*graph.Graph, error) {
	if b.err != nil {
		return nil, fmt.Errorf("kernel %q: %w", b.p.Recipe.Name, b.err)
	}
	g, err := graph.New(b.steps...)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: %w", b.p.Recipe.Name, err)
	}
	return g, nil
}

// Resources of steps: those that compile take all that is given, those that
// emulate one machine take one CPU for a longer time.
var (
	light   = graph.Resources{CPUs: 1, MemoryMiB: 512, Limit: 30 * time.Minute}
	emulate = graph.Resources{CPUs: 1, MemoryMiB: 2048, Limit: 6 * time.Hour}
)

func (p *Pipeline) heavy() graph.Resources {
	return graph.Resources{CPUs: max(1, p.Jobs), MemoryMiB: 3072, Limit: 6 * time.Hour}
}

func (b *builder) inputs(inputs Inputs, err error) Inputs {
	b.err = errors.Join(b.err, err)
	return inputs
}

// bench asks once: it takes a while to look at all that a guest is made of.
func (b *builder) bench() Inputs {
	if b.benchInputs == nil {
		b.benchInputs = b.inputs(b.p.Bench.Inputs())
	}
	return b.benchInputs
}

// steady has what a step did count only if its inputs are still those of its key
// when it is done: a build takes hours, in which packages and programs of the
// workload may be updated.
func steady(inputs Inputs, ask func() (Inputs, error), run func(context.Context, *graph.Work) error) func(context.Context, *graph.Work) error {
	return func(ctx context.Context, w *graph.Work) error {
		if err := run(ctx, w); err != nil {
			return err
		}
		now, err := ask()
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(inputs)) {
			if now[name] != inputs[name] {
				return fmt.Errorf("%s changed while the build ran: build again, with what is there now", name)
			}
		}
		return nil
	}
}

// add adds a step; kind is empty when it is the name.
func (b *builder) add(name, kind string, inputs Inputs, needs map[string]string, resources graph.Resources, run func(context.Context, *graph.Work) error) {
	b.steps = append(b.steps, graph.Step{Name: name, Kind: kind, Inputs: inputs, Needs: needs, Resources: resources, Run: run})
}

// after makes the last step wait for another, of which it reads nothing.
func (b *builder) after(step string) { b.steps[len(b.steps)-1].After = []string{step} }

func (b *builder) configure(name string, variant build.Variant, slim string) {
	needs := map[string]string{"source": "source"}
	if slim != "" {
		needs["slim"] = slim
	}
	run := func(ctx context.Context, w *graph.Work) error {
		fragment := ""
		if slim != "" {
			fragment = filepath.Join(w.Need("slim"), slimFile)
		}
		return b.p.Kernels.Configure(ctx, variant, fragment, w)
	}
	b.add(name, "config", b.inputs(b.p.Kernels.ConfigureInputs(variant)), needs, light, run)
}

func (b *builder) compile(name string, variant build.Variant, config, profile string) {
	needs := map[string]string{"source": "source", "config": config}
	if profile != "" {
		needs["profile"] = profile
	}
	run := func(ctx context.Context, w *graph.Work) error {
		counts := ""
		if profile != "" {
			counts = filepath.Join(w.Need("profile"), profileDir)
		}
		return b.p.Kernels.Compile(ctx, variant, filepath.Join(w.Need("config"), build.ConfigFile), counts, w)
	}
	b.add(name, "kernel", b.inputs(b.p.Kernels.CompileInputs(variant)), needs, b.p.heavy(), run)
}

// Files that steps leave for others.
const (
	slimFile    = "slim.config"
	outcomeFile = "slim.json"
	objectsOf   = "objects.json"
	profileDir  = "profile"
)

// slim adds the way from the recipe's kernel to what can be left out of it.
func (b *builder) slim() (step string) {
	if b.p.Training != nil {
		return b.trained("slim", training.Slimming)
	}
	if b.p.Slimmer == nil || b.p.Bench == nil {
		b.err = errors.Join(b.err, errors.New("slimming needs a workload"))
		return ""
	}
	b.configure("traced-config", build.Traced, "")
	b.compile("traced", build.Traced, "traced-config", "")
	b.tries("trace", "", "traced", b.p.Bench.Trace)
	inputs := b.inputs(b.p.Slimmer.Inputs())
	b.add("slim", "", inputs, map[string]string{"kernel": "traced", "trace": "trace", "source": "source"}, b.p.heavy(),
		steady(inputs, b.p.Slimmer.Inputs, func(ctx context.Context, w *graph.Work) error {
			return b.p.Slimmer.Slim(ctx, Slimming{Kernel: w.Need("kernel"), Trace: w.Need("trace")}, w)
		}))
	return "slim"
}

// profile adds the way from a configuration to a kernel that was compiled with
// a profile of its own.
func (b *builder) profile(slim string) (candidate string) {
	switch {
	case b.p.Training != nil && !b.p.Training.SlimmingOnly:
		b.trained("profile", training.Profile)
	case b.p.Bench == nil:
		b.err = errors.Join(b.err, errors.New("a profile needs a workload"))
		return ""
	case b.p.Recipe.Optimisation.Counted():
		b.count(slim)
	default:
		b.sample()
	}
	b.configure("optimised-config", build.Optimised, slim)
	b.compile("optimised", build.Optimised, "optimised-config", "profile")
	return "optimised"
}

// count adds the profile that an instrumented kernel counts.
func (b *builder) count(slim string) {
	b.configure("instrumented-config", build.Instrumented, slim)
	b.compile("instrumented", build.Instrumented, "instrumented-config", "")
	if len(b.p.Traces) > 0 {
		b.name("instrumented", b.p.traced()) // counters have no part in it
	}
	if len(b.p.Counters) > 0 {
		b.profileOfRuns()
	} else {
		b.tries("profile", "", "instrumented", b.p.Bench.Profile)
	}
}

// fit adds the look at whether the profile was of use, by the same kernel
// without one. It is a step of its own, and not a need of the compilation: who
// only compares kernels has no use for the plain one.
func (b *builder) fit(plain, candidate string) {
	text, err := graph.ValueDigest(pgo.DefaultLimits)
	b.err = errors.Join(b.err, err)
	b.add("fit", "", Inputs{"limits": text}, map[string]string{"kernel": candidate, "without": plain}, light, fit)
}

// judge adds what is done with a candidate. A kernel that does not boot is not
// measured.
func (b *builder) judge(plain, candidate string) {
	if name := b.p.Recipe.Name; name == KernelStock || name == kernelCurrent || name == kernelPlain && plain != candidate {
		b.err = errors.Join(b.err, fmt.Errorf("%s is another kernel's name in its report: give the recipe another one", name))
		return
	}
	b.add("stock", "", b.inputs(b.p.Kernels.StockInputs(context.Background())), nil, light, b.p.Kernels.Stock)
	kernels := map[string]string{KernelStock: "stock", b.p.Recipe.Name: candidate}
	if plain != candidate {
		kernels[kernelPlain] = plain
	}
	if b.p.Current != "" {
		b.add("current", "", b.current(), nil, light, func(_ context.Context, w *graph.Work) error {
			return build.Publish(b.p.Current, w.Dir, build.ImageFile, build.ManifestFile)
		})
		kernels[kernelCurrent] = "current"
	}
	if plain != candidate {
		b.fit(plain, candidate)
	}
	b.tries("boot", "", candidate, b.p.Bench.Boot)
	if plain != candidate {
		b.after("fit")
	}
	needs := map[string]string{}
	for name, step := range kernels {
		needs["kernel-"+name] = step
		b.measure(name, step, candidate, needs)
	}
	if b.p.Recipe.Slimming == build.SlimmingTrace {
		needs["slim"] = "slim"
	}
	b.tries("trace-"+candidate, "trace", candidate, b.p.Bench.Trace)
	b.after("boot")
	needs["trace"] = "trace-" + candidate
	b.report(needs)
}

// verdictForm changes when the same facts give another verdict, or one of another form.
const verdictForm = 4

// report adds the verdict and the page. Both read the same facts.
func (b *builder) report(needs map[string]string) {
	workload := b.p.Bench.Workload()
	rules := map[string]any{"workload": workload, "rules": b.p.Rules, "optimisation": b.p.Recipe.Optimisation,
		"verdict": verdictForm, "shares": b.p.RunShares}
	if runs := b.p.trainedOn(); len(runs) > 1 { // the workload's own is in it
		rules["trained"] = runs
	}
	text, err := graph.ValueDigest(rules)
	b.err = errors.Join(b.err, err)
	inputs := Inputs{"name": b.p.Recipe.Name, "rules": text}
	b.add(StepVerdict, "", inputs, needs, light, b.p.decide)
	inputs = Inputs{"name": b.p.Recipe.Name, "rules": text, "command": b.p.Command, "machine": b.p.Machine}
	b.add(StepReport, "", inputs, needs, light, b.p.report)
}

// publish adds the effect at the end: of the candidate, whose kernel is in the
// result of another step where it was made of runs.
func (b *builder) publish(candidate, kernel string) {
	needs := map[string]string{"kernel": kernel}
	if b.p.Bench != nil {
		needs["verdict"], needs["report"] = StepVerdict, StepReport
		for _, data := range []Data{Test, Train} {
			needs[measuredAs(b.p.Recipe.Name, data)] = measureID(candidate, data)
		}
	}
	if len(b.p.Recipe.Modules) > 0 {
		needs[stepModules] = stepModules
	}
	if b.p.SaveTraining != "" {
		b.save(needs)
	}
	b.steps = append(b.steps, graph.Step{Name: StepPublish, Needs: needs, Effect: true, Run: b.p.finish})
}

// measure adds the runs of one kernel: with the test data for each, and with the
// training data too for the candidate, so that the two can be compared.
func (b *builder) measure(name, step, candidate string, needs map[string]string) {
	for _, data := range []Data{Test, Train} {
		if data == Train && step != candidate {
			continue
		}
		id := measureID(step, data)
		mine := MeasureInputs(data, b.p.Bench.Workload().Run(data))
		maps.Copy(mine, b.bench())
		b.add(id, "measure", mine, map[string]string{"kernel": step}, emulate,
			steady(b.bench(), b.p.Bench.Inputs, func(ctx context.Context, w *graph.Work) error {
				return b.p.Bench.Measure(ctx, w.Need("kernel"), data, w)
			}))
		if step == candidate {
			b.after("boot")
		}
		needs[measuredAs(name, data)] = id
	}
}

// MeasureInputs are what a measurement depends on beside the kernel and the bench.
func MeasureInputs(data Data, run verdict.Run) Inputs {
	return Inputs{"data": fmt.Sprintf("%s seed %d size %d", data, run.Seed, run.Size),
		"strings": fmt.Sprintf("as %d and 1 for %d bytes", verdict.StringBegin, verdict.StringBytesPerInstruction)}
}

func measureID(step string, data Data) string { return fmt.Sprintf("measure-%s-%s", step, data) }

func measuredAs(kernel string, data Data) string { return fmt.Sprintf("measured-%s-%s", data, kernel) }

func (b *builder) current() Inputs {
	inputs := Inputs{}
	for _, name := range []string{build.ImageFile, build.ManifestFile} {
		digest, err := graph.FileDigest(filepath.Join(b.p.Current, name))
		b.err = errors.Join(b.err, err)
		inputs[name] = digest
	}
	return inputs
}
