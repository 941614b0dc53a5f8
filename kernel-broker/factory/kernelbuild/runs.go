// SPDX-License-Identifier: Apache-2.0

package kernelbuild

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
)

// TakeRuns adds to the options what the runs give: traces for slimming, counters
// for the profile. All runs are read before anything is written.
func (r *Request) TakeRuns(ctx context.Context, broker Broker) error {
	if len(r.Runs) == 0 {
		return nil
	}
	var runs []Run
	for _, id := range r.Runs {
		run, err := broker.Run(ctx, id)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	recipe, err := build.LoadRecipe(r.Options.Catalog, r.Options.Name)
	if err != nil {
		return err
	}
	for _, run := range runs {
		inputs, err := run.inputs(recipe, r.Instrumented)
		if err != nil {
			return err
		}
		if inputs.trace {
			path, err := run.keepTrace(r.Options.Cache)
			if err != nil {
				return err
			}
			r.Options.Traces = append(r.Options.Traces, path)
		}
		if inputs.counters {
			counters, err := run.fetchCounters(ctx, broker, r.Options.Cache)
			if err != nil {
				return err
			}
			r.Options.Counters = append(r.Options.Counters, counters...)
			inputs.archives = len(counters)
		}
		if share := run.share(); share != nil && !r.Instrumented {
			r.Options.RunShares = append(r.Options.RunShares, *share)
			inputs.share = share
		}
		r.Say("%s", run.summary(inputs))
	}
	return nil
}

// runInputs says what a build takes from a run, and why not the rest.
type runInputs struct {
	trace, counters bool
	aside           string
	archives        int // of counters, when they were fetched
	share           *verdict.RunShare
}

func (r Run) counted() bool { return r.Result.PGO != nil && len(r.Result.PGO.Archives) > 0 }

// inputs decides what of a run goes into the build of a recipe, or why nothing does.
// Counters fit one kernel, and those of another profile's are refused before hours
// of work; whether they are of the very build is found out when that is there.
// Names of functions fit any kernel.
func (r Run) inputs(recipe build.Recipe, instrumented bool) (runInputs, error) {
	traced, id := r.Result.Used().Any(), r.ID
	slimmed, profiled := recipe.Slimming == build.SlimmingTrace, recipe.Optimisation.Counted()
	no := func(format string, args ...any) (runInputs, error) {
		return runInputs{}, fmt.Errorf("run %d "+format+": %w", append(append([]any{id}, args...), kb.ErrFailedPrecondition)...)
	}
	g := runInputs{trace: traced && slimmed, counters: r.counted() && profiled && !instrumented}
	if want := recipe.Name + kb.InstrumentedSuffix; g.counters && r.Kernel.Profile != want {
		return no("was on the kernel %s: kernel %s is made from counters of %s (sbatch --kernel-profile=%s --kernel-profiling=pgo)",
			r.Kernel, recipe.Name, want, recipe.Name)
	}
	switch {
	case !traced && !r.counted():
		return no("tells nothing to make a kernel of, it has %s: sbatch --kernel-profiling=syscalls,callgraph finds what a job uses of its kernel, "+
			"and --kernel-profiling=pgo boots the instrumented kernel, which counts", r.has())
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
	case r.counted() && instrumented:
		g.aside = "its counters are left aside: they are for the kernel after the one that counts"
	case r.counted() && !profiled:
		g.aside = "its counters are left aside: the recipe takes no profile"
	}
	return g, nil
}

// tracing are the collectors that say what a job used of its kernel.
var tracing = []profiling.Collector{profiling.CollectSyscalls, profiling.CollectCallgraph, profiling.CollectCallCounts}

// has are the run's collectors that found something, and why others did not.
func (r Run) has() string {
	var names []string
	for _, c := range r.Result.Collectors {
		names = append(names, string(c))
	}
	text := strings.Join(names, ", ")
	if text == "" {
		text = "no collector's result"
	}
	for _, refused := range r.Result.Refused {
		if refused.Part == "" && slices.Contains(tracing, refused.Collector) {
			return fmt.Sprintf("%s (node %q: %s)", text, refused.Node, refused.Error())
		}
	}
	return text
}

// summary says what the build uses of a run, and what the run lacks.
func (r Run) summary(g runInputs) string {
	var parts []string
	if g.trace {
		used := r.Result.Used()
		parts = append(parts, fmt.Sprintf("%d system calls and %d functions that its job used stay in the kernel", len(used.Calls), len(used.Functions)))
	}
	if g.counters {
		parts = append(parts, fmt.Sprintf("counters in %d archives", g.archives))
	}
	if g.share != nil {
		parts = append(parts, fmt.Sprintf("%s of its CPU time is the kernel's, by which the verdict judges the whole", advice.Percent(g.share.Share)))
	}
	if g.aside != "" {
		parts = append(parts, g.aside)
	}
	if n := len(r.Result.Partial); n > 0 {
		p := r.Result.Partial[0]
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" and %d more", n-1)
		}
		parts = append(parts, fmt.Sprintf("it is not whole (node %s: %s%s), and what there is of it counts", p.Node, strings.TrimSpace(p.Why), more))
	}
	return fmt.Sprintf("run %d: %s", r.ID, strings.Join(parts, "; "))
}

// share is the kernel's part of the job's CPU time, without what the measuring
// took; nil if it is not known. A kernel that counts is slower than any other, so
// that a share on it says nothing of others.
func (r Run) share() *verdict.RunShare {
	known := advice.Decide(r.Result).KernelShare
	if known == nil || *known > 1 || strings.HasSuffix(r.Kernel.Profile, kb.InstrumentedSuffix) {
		return nil
	}
	kernel := r.Kernel
	if kernel.Profile == "" {
		kernel = kb.Ref{Profile: kb.StockProfile}
	}
	return &verdict.RunShare{Run: r.ID, Kernel: kernel.String(), Share: *known}
}

// keepTrace writes what the job was seen to use into the cache, under the digest of
// it: a build that is done as jobs reads it there.
func (r Run) keepTrace(cache string) (string, error) {
	used := r.Result.Used()
	trace := slim.JobTrace{Run: r.ID, Calls: used.Calls, Functions: used.Functions, FileSystems: used.FileSystems}
	for _, node := range r.Result.Nodes {
		if !slices.Contains(trace.Releases, node.Kernel.Release) {
			trace.Releases = append(trace.Releases, node.Kernel.Release)
		}
	}
	for _, node := range r.Nodes {
		for _, file := range node.Files {
			if file.Name == kb.ResultFile {
				trace.Results = append(trace.Results, slim.JobResult{Node: node.Name, Digest: file.Digest})
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
	return path, trace.Write(path)
}

// fetchCounters stores the archives of all nodes in the cache; the build adds them up.
func (r Run) fetchCounters(ctx context.Context, broker Broker, cache string) ([]pipeline.Counters, error) {
	var all []pipeline.Counters
	fetched := map[string]bool{}
	for _, archive := range r.Result.PGO.Archives {
		file := r.file(archive)
		if file == nil {
			return nil, fmt.Errorf("run %d: node %q did not deliver its counters, %s: %w", r.ID, archive.Node, archive.Name, kb.ErrNotFound)
		}
		if fetched[file.Digest] {
			continue // an agent that came back names it twice
		}
		fetched[file.Digest] = true
		path := filepath.Join(cache, "counters", strings.TrimPrefix(file.Digest, "sha256:")+".tar.gz")
		if _, err := os.Stat(path); err != nil {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return nil, err
			}
			if err := broker.Fetch(ctx, file.Digest, file.Size, path); err != nil {
				return nil, fmt.Errorf("run %d: node %q: %w", r.ID, archive.Node, err)
			}
		}
		all = append(all, pipeline.Counters{Run: r.ID, Node: archive.Node, BuildID: archive.BuildID, Path: path})
	}
	return all, nil
}

// file of an archive among the files that the nodes delivered.
func (r Run) file(archive profiling.Archive) *kb.Document {
	for _, n := range r.Nodes {
		for i := range n.Files {
			if n.Name == archive.Node && n.Files[i].Name == archive.Name {
				return &n.Files[i]
			}
		}
	}
	return nil
}
