// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// objectsFile has, beside an instrumented kernel, the path under which the
// kernel shows its counters.
const objectsFile = "objects"

// Factory is Kernels by package build, for one plan.
type Factory struct {
	Builder *build.Builder
	Plan    build.Plan
}

// builder is the same one with its words in a step's log.
func (f Factory) builder(w *graph.Work) *build.Builder {
	b := *f.Builder
	b.Progress = build.Progress{Out: w.Log, Kernel: f.Plan.Recipe.Name}
	return &b
}

func (f Factory) Source(ctx context.Context, w *graph.Work) error {
	source, err := f.builder(w).Fetch(ctx, f.Plan)
	if err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(w.Dir, "source.json"), source, 0o644)
}

func (f Factory) SourceInputs() (Inputs, error) {
	inputs, err := build.ConfigureInput{Variant: build.Plain}.Inputs(f.Plan)
	if err != nil {
		return nil, err
	}
	for name := range inputs {
		if name != "source" && !strings.HasPrefix(name, "patch ") {
			delete(inputs, name)
		}
	}
	return inputs, nil
}

func (f Factory) Configure(ctx context.Context, variant build.Variant, slim string, w *graph.Work) error {
	return blamed(f.builder(w).Configure(ctx, f.Plan, build.ConfigureInput{Variant: variant, Slim: slim}, w.Dir))
}

func (f Factory) ConfigureInputs(variant build.Variant) (Inputs, error) {
	return build.ConfigureInput{Variant: variant}.Inputs(f.Plan)
}

func (f Factory) Compile(ctx context.Context, variant build.Variant, config, profile string, w *graph.Work) error {
	input := build.CompileInput{Variant: variant, Config: config, Profile: profile}
	if variant == build.Instrumented {
		input.Linked = func(_ context.Context, objects string) error {
			return os.WriteFile(filepath.Join(w.Dir, objectsFile), []byte(objects+"\n"), 0o644)
		}
	}
	manifest, err := f.builder(w).Compile(ctx, f.Plan, input, build.Watch{Log: w.Log, Units: w.Units}, w.Dir)
	var build *build.BuildError
	if errors.As(err, &build) && ctx.Err() == nil {
		// The graph shows the log's end, in which that of the build is.
		failed := fmt.Errorf("kernel %q: make %s: %w", f.Plan.Recipe.Name, build.Target, build.Err)
		if brokenBuild(ctx, err) == nil || strings.Contains(build.Tail, killed) {
			return failed
		}
		return unbuildable{failed, complaint(build.Tail)}
	}
	if err != nil {
		return err
	}
	w.Say("%s: %d bytes, build id %s", manifest.Release, manifest.Image.Size, manifest.BuildID)
	return nil
}

func (f Factory) CompileInputs(variant build.Variant) (Inputs, error) {
	return build.CompileInput{Variant: variant}.Inputs(f.Plan)
}

func (f Factory) Stock(ctx context.Context, w *graph.Work) error {
	_, err := f.builder(w).Distribution(ctx, w.Dir)
	return err
}

func (f Factory) StockInputs(ctx context.Context) (Inputs, error) {
	name, err := build.DistributionPackage(ctx)
	return Inputs{"package": name}, err
}

// fit compares the text of a kernel that was compiled with a profile with the
// same one's without. Each of them says in its manifest how large its sections
// are and what the compiler complained of.
func fit(_ context.Context, w *graph.Work) error {
	with, err := build.ReadManifest(w.Need("kernel"))
	if err != nil {
		return err
	}
	without, err := build.ReadManifest(w.Need("without"))
	if err != nil {
		return err
	}
	if without.Sections == nil {
		return fmt.Errorf("kernel %q: the sizes of its text are not known", without.Name)
	}
	if err := with.Fits(*without.Sections); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(w.Dir, "fit.json"), map[string]*pgo.Sections{"with": with.Sections, "without": without.Sections}, 0o644)
}

// StoreIn is the place of results in a cache folder.
func StoreIn(cache string) graph.Store { return graph.Store{Dir: filepath.Join(cache, "graph")} }

// CandidatesIn is the place of candidates in a cache folder.
func CandidatesIn(cache string) Candidates {
	return Candidates{Dir: filepath.Join(cache, "candidates")}
}

// Build does what is left to do for the kernel and returns what it became. With
// a step named it stops after that one, and there is no candidate. A kernel that
// does not do what it has to is a candidate that failed, and no error.
func (p *Pipeline) Build(ctx context.Context, runner *graph.Runner, until ...string) (*Candidate, error) {
	g, err := p.Graph()
	if err != nil {
		return nil, err
	}
	p.made = nil
	p.results, err = runner.Run(ctx, p.Recipe.Name, g, until...)
	found, rest := faults(err)
	for _, fault := range found {
		failed, err := p.blame(fault)
		rest = errors.Join(rest, err)
		p.made = &failed
	}
	return p.made, rest
}

// Folder has what a step of the last Build made; empty if it did not come to that.
// The newest build of the name may be another one.
func (p *Pipeline) Folder(step string) string {
	if result, has := p.results[step]; has {
		return result.Files()
	}
	return ""
}

// ErrNeedsRun is in the error about a recipe that cannot be followed without
// running a kernel.
var ErrNeedsRun = errors.New("needs a run of its workload: kernelctl kernel build")
