// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// profilingRun is a profiling run and what there is of it.
type profilingRun struct {
	run    *api.Run
	result profiling.Result
}

// fromRuns puts into the request what the runs give: traces for slimming, counters
// for the profile. Nothing is built before all of them are at hand.
func (a *app) fromRuns(ctx context.Context, r *buildRequest) error {
	ids, err := runIDs(r.fromRuns)
	if err != nil || len(ids) == 0 {
		return err
	}
	var runs []profilingRun
	for _, id := range ids {
		run, err := a.getRun(ctx, id)
		if err != nil {
			return err
		}
		result, err := a.result(ctx, run)
		if err != nil {
			return err
		}
		runs = append(runs, profilingRun{run, result})
	}
	recipe, err := build.LoadRecipe(r.options.Catalog, r.options.Name)
	if err != nil {
		return err
	}
	for _, one := range runs {
		gives, err := one.gives(recipe, r.instrumented)
		if err != nil {
			return err
		}
		if gives.trace {
			path, err := one.keepTrace(r.options.Cache)
			if err != nil {
				return err
			}
			r.options.Traces = append(r.options.Traces, path)
		}
		if gives.counters {
			counters, err := a.countersOf(ctx, one, r.options.Cache)
			if err != nil {
				return err
			}
			r.options.Counters = append(r.options.Counters, counters...)
			gives.archives = len(counters)
		}
		a.say("%s", one.words(gives))
	}
	return nil
}

// runIDs reads numbers with commas, of which each may be given again.
func runIDs(lists []string) ([]uint64, error) {
	var ids []uint64
	for _, text := range lists {
		for one := range strings.SplitSeq(text, ",") {
			id, err := runID(one)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// runInputs says what a build takes from a run, and why not the rest.
type runInputs struct {
	trace, counters bool
	aside           string
	archives        int // of counters, when they were fetched
}

func (f profilingRun) counted() bool { return f.result.PGO != nil && len(f.result.PGO.Archives) > 0 }

// gives decides what of a run goes into the build of a recipe, or why nothing does.
// Counters fit one kernel, and those of another profile's are refused before hours
// of work; whether they are of the very build is found out when that is there.
// Names of functions fit any kernel.
func (f profilingRun) gives(recipe build.Recipe, instrumented bool) (runInputs, error) {
	traced, id := f.result.Used().Any(), f.run.GetId()
	slimmed, profiled := recipe.Slimming == build.SlimmingTrace, recipe.Optimisation.Profiled()
	no := func(format string, args ...any) (runInputs, error) {
		return runInputs{}, fmt.Errorf("run %d "+format+": %w", append(append([]any{id}, args...), kb.ErrFailedPrecondition)...)
	}
	g := runInputs{trace: traced && slimmed, counters: f.counted() && profiled && !instrumented}
	if want := recipe.Name + kb.InstrumentedSuffix; g.counters && f.run.GetKernelProfile() != want {
		return no("was on the kernel %s: kernel %s is made from counters of %s (sbatch --kernel-profile=%s --kernel-profiling=pgo)",
			runKernel(f.run), recipe.Name, want, recipe.Name)
	}
	switch {
	case !traced && !f.counted():
		return no("tells nothing to make a kernel of, it has %s: sbatch --kernel-profiling=syscalls,callgraph finds what a job uses of its kernel, "+
			"and --kernel-profiling=pgo boots the instrumented kernel, which counts", f.has())
	case instrumented && !traced:
		return no("has counters alone: they were taken on a kernel that counts, and cannot be part of one. " +
			"Name runs with syscalls or callgraph, of which slimming keeps what the job used, or no run")
	case traced && !slimmed && !g.counters:
		return no("tells what its job used of its kernel, and the recipe %s does not slim (slimming: %s), so that all of its options stay anyway",
			recipe.Name, build.SlimmingTrace)
	case !g.trace && !g.counters:
		return no("has counters, and the recipe %s takes no profile (optimisation: %s or %s)", recipe.Name, build.OptimisePGO, build.OptimisePGOSafe)
	case traced && !slimmed:
		g.aside = "what its job used is left aside: the recipe does not slim"
	case f.counted() && instrumented:
		g.aside = "its counters are left aside: they are for the kernel after the one that counts"
	case f.counted() && !profiled:
		g.aside = "its counters are left aside: the recipe takes no profile"
	}
	return g, nil
}

// has are the run's collectors that found something, and why others did not.
func (f profilingRun) has() string {
	var names []string
	for _, c := range f.result.Collectors {
		names = append(names, string(c))
	}
	text := strings.Join(names, ", ")
	if text == "" {
		text = "no collector's result"
	}
	for _, refused := range f.result.Refused {
		if refused.Part == "" && (refused.Collector == profiling.CollectSyscalls || refused.Collector == profiling.CollectCallgraph) {
			return fmt.Sprintf("%s (node %q: %s)", text, refused.Node, plain(refused.Error()))
		}
	}
	return text
}

// words say what is used of a run, and what should be known of it.
func (f profilingRun) words(g runInputs) string {
	var parts []string
	if g.trace {
		used := f.result.Used()
		parts = append(parts, fmt.Sprintf("%d system calls and %d functions that its job used stay in the kernel", len(used.Calls), len(used.Functions)))
	}
	if g.counters {
		parts = append(parts, fmt.Sprintf("counters in %d archives", g.archives))
	}
	if g.aside != "" {
		parts = append(parts, g.aside)
	}
	if n := len(f.result.Partial); n > 0 {
		p := f.result.Partial[0]
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" and %d more", n-1)
		}
		parts = append(parts, fmt.Sprintf("it is not whole (node %s: %s%s), and what there is of it counts", p.Node, strings.TrimSpace(p.Why), more))
	}
	return fmt.Sprintf("run %d: %s", f.run.GetId(), strings.Join(parts, "; "))
}

// keepTrace writes what the job was seen to use into the cache, under the digest of
// it: a build that is done as jobs reads it there.
func (f profilingRun) keepTrace(cache string) (string, error) {
	used := f.result.Used()
	trace := slim.JobTrace{Run: f.run.GetId(), Calls: used.Calls, Functions: used.Functions, FileSystems: used.FileSystems}
	for _, node := range f.result.Nodes {
		if !slices.Contains(trace.Releases, node.Kernel.Release) {
			trace.Releases = append(trace.Releases, node.Kernel.Release)
		}
	}
	for _, node := range f.run.GetNodes() {
		for _, file := range node.GetFiles() {
			if file.GetName() == kb.ResultFile {
				trace.Results = append(trace.Results, slim.JobResult{Node: node.GetName(), Digest: file.GetDigest()})
			}
		}
	}
	digest, err := graph.ValueDigest(trace)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "traces", digest+".json")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, trace.Write(path)
}

// countersOf a run, fetched into the cache. Several runs, and all nodes of each, are
// added up by the build.
func (a *app) countersOf(ctx context.Context, f profilingRun, cache string) ([]pipeline.Counters, error) {
	id := f.run.GetId()
	var all []pipeline.Counters
	fetched := map[string]bool{}
	for _, archive := range f.result.PGO.Archives {
		file := archiveOf(f.run, archive)
		if file == nil {
			return nil, fmt.Errorf("run %d: node %q did not deliver its counters, %s: %w", id, archive.Node, archive.Name, kb.ErrNotFound)
		}
		if fetched[file.GetDigest()] {
			continue // an agent that came back names it twice
		}
		fetched[file.GetDigest()] = true
		path := filepath.Join(cache, "counters", strings.TrimPrefix(file.GetDigest(), "sha256:")+".tar.gz")
		if _, err := os.Stat(path); err != nil {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return nil, err
			}
			if err := a.fetch(ctx, file.GetDigest(), file.GetSize(), path); err != nil {
				return nil, fmt.Errorf("run %d: node %q: %w", id, archive.Node, err)
			}
		}
		all = append(all, pipeline.Counters{Run: id, Node: archive.Node, BuildID: archive.BuildID, Path: path})
	}
	return all, nil
}

func archiveOf(r *api.Run, archive profiling.Archive) *api.RunFile {
	for _, n := range r.GetNodes() {
		for _, f := range n.GetFiles() {
			if n.GetName() == archive.Node && f.GetName() == archive.Name {
				return f
			}
		}
	}
	return nil
}
