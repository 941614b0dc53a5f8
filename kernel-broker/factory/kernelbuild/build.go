// SPDX-License-Identifier: Apache-2.0

// Package kernelbuild has the use cases behind "kernelctl kernel build", which
// fetches from the broker what a build is made of and compared with, runs the
// pipeline and registers a kernel that wins, and behind its commands tune and
// hardware.
package kernelbuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Broker is what a build needs of the broker.
type Broker interface {
	// Profile with its versions; nil if there is none of that name.
	Profile(ctx context.Context, name string) (*kb.Profile, error)
	// Settings of the profile's default version, for the next one; an error if
	// they cannot be registered again.
	Settings(profile *kb.Profile) (Settings, error)
	// Run is a profiling run with the merged results of its nodes.
	Run(ctx context.Context, id uint64) (Run, error)
	// Fetch stores an artifact in a file, after checking its digest.
	Fetch(ctx context.Context, digest string, size uint64, path string) error
	// Provenance is the registered manifest of a version; nil if it has none.
	Provenance(ctx context.Context, v kb.ProfileVersion) ([]byte, error)
	// Register adds a kernel to its profile, as the default version, and returns
	// its reference. A kernel that is registered already stays as it is.
	Register(ctx context.Context, k Registration) (kb.Ref, error)
}

// Run is a finished profiling run.
type Run struct {
	ID     uint64
	Kernel kb.Ref
	Nodes  []kb.RunNode
	Result profiling.Result
}

// Settings are the site's for a version, whatever its kernel.
type Settings struct {
	Arguments   []string
	SystemCores uint32
}

// Registration describes a built kernel for the catalog.
type Registration struct {
	Profile, Application, Description string
	// Dir has the image and its manifest.
	Dir string
	Settings
	// Report and Page are files; empty for a kernel that was not measured.
	Report, Page string
}

// Request says what to build and where.
type Request struct {
	Options pipeline.Options
	// Site is the file of the site's policy.
	Site string
	// Runs are profiling runs that the kernel is made from.
	Runs []uint64
	// Publish registers a kernel that wins.
	Publish bool
	// Instrumented builds and registers the kernel that counts, and stops.
	Instrumented bool
	// Until names the last step; empty for all steps.
	Until    string
	Parallel int
	// Slurm runs the steps as jobs; nil runs them in this process.
	Slurm *Slurm
	// Observe receives the progress of steps, Say notes for the user.
	Observe func(graph.Event)
	Say     func(format string, args ...any)

	beaten string // for Publisher
}

// Slurm says how steps run as jobs.
type Slurm struct {
	// Worker is the program kernel-factory as the nodes see it; empty: beside
	// this program, else found by PATH.
	Worker string
	// Arguments for sbatch.
	Arguments []string
}

type Result struct {
	// Candidate is nil after a build that stopped at a step.
	Candidate *pipeline.Candidate
	// Instrumented is the reference of the registered kernel that counts.
	Instrumented kb.Ref
	// Training is the digest of the training data that were saved.
	Training string
	// Cost of the steps; nil if none ran.
	Cost *graph.Cost
}

// Build follows the request. A kernel that fails its boot or its workload is a
// failed candidate and no error.
func Build(ctx context.Context, r Request, broker Broker) (Result, error) {
	policy, err := site.Load(r.Site)
	if err != nil {
		return Result{}, err
	}
	r.Options.UnequalMitigations = policy.Mitigations == site.Any
	if err := r.Options.Complete(r.Say); err != nil {
		return Result{}, err
	}
	if err := r.TakeRuns(ctx, broker); err != nil {
		return Result{}, err
	}
	// Contact the broker before hours of work.
	if err := r.prepare(ctx, broker); err != nil {
		return Result{}, err
	}
	// The nodes may have a tool that this host lacks.
	if err := r.Options.CheckInputs(ctx); err != nil && (r.Slurm == nil || !errors.Is(err, exec.ErrNotFound)) {
		return Result{}, err
	}
	r.Options.Train = r.Options.Train || r.Instrumented
	r.Options.Command = r.command()
	p, err := pipeline.Open(ctx, r.Options)
	if err != nil {
		return Result{}, err
	}
	var until []string
	switch {
	case r.Instrumented:
		if !p.Recipe.Optimisation.Counted() {
			return Result{}, fmt.Errorf("kernel %q: no kernel counts for it: its recipe does not say optimisation: %s or %s: %w",
				p.Recipe.Name, build.OptimisePGO, build.OptimisePGOSafe, kb.ErrFailedPrecondition)
		}
		until = []string{p.InstrumentedStep()}
	case r.Until != "":
		until = []string{r.Until}
	}
	if r.Publish {
		p.Publisher = Publisher{Broker: broker, Beaten: r.beaten}
	}
	runner, err := r.runner()
	if err != nil {
		return Result{}, err
	}
	var result Result
	result.Candidate, err = p.Build(ctx, runner, until...)
	if status, err := p.Store.Status(r.Options.Name, ""); err == nil { // the cost is for information only
		result.Cost = &status.Cost
	}
	result.Training = p.SavedTraining()
	if r.Instrumented && err == nil {
		result.Instrumented, err = r.registerInstrumented(ctx, broker, p)
	}
	return result, err
}

// prepare finds the kernel to compare with, and checks that the result can be
// registered.
func (r *Request) prepare(ctx context.Context, broker Broker) error {
	if r.Instrumented {
		_, err := broker.Profile(ctx, r.Options.Name+kb.InstrumentedSuffix)
		return err
	}
	if !r.Publish {
		return nil
	}
	profile, err := broker.Profile(ctx, r.Options.Name)
	if err == nil {
		r.beaten = imageOf(profile)
		r.Options.Current, err = CurrentKernel(ctx, broker, profile, filepath.Join(r.Options.Cache, "current"))
	}
	if err != nil {
		return fmt.Errorf("%w (--publish never builds without a broker)", err)
	}
	_, err = broker.Settings(profile)
	return err
}

// command that repeats the build, for the report.
func (r *Request) command() string {
	command := "kernelctl kernel build " + r.Options.Name
	if r.Options.Train {
		command += " --train"
	}
	if len(r.Runs) > 0 {
		command += " --from-run " + joined(r.Runs)
	}
	for _, s := range r.Options.Samples {
		file := s.Path
		if s.Weight != 1 {
			file += fmt.Sprintf("=%d", s.Weight)
		}
		command += " --from-perf " + quoted(file)
	}
	for _, file := range r.Options.Nodes {
		command += " --nodes " + quoted(file)
	}
	if r.Options.Aliases != "" {
		command += " --aliases " + quoted(r.Options.Aliases)
	}
	return command
}

// quoted is a path as a shell takes it.
func quoted(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

func joined(runs []uint64) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(runs), "[]"), " ", ",")
}

func (r *Request) runner() (*graph.Runner, error) {
	runner := &graph.Runner{Store: pipeline.StoreIn(r.Options.Cache), Parallel: r.Parallel, Observe: r.Observe}
	if r.Slurm == nil {
		return runner, nil
	}
	plan, err := r.Options.Save()
	if err != nil {
		return nil, err
	}
	worker := r.Slurm.Worker
	if worker == "" {
		worker = findTool("kernel-factory")
	}
	runner.Slurm = &graph.Slurm{Worker: []string{worker, "step", "--plan", plan}, Arguments: r.Slurm.Arguments}
	return runner, nil
}

// findTool finds one of our programs: beside this one, else by PATH.
func findTool(name string) string {
	executable, err := os.Executable()
	if err != nil {
		return name
	}
	path := filepath.Join(filepath.Dir(executable), name)
	if _, err := os.Stat(path); err != nil {
		return name
	}
	return path
}
