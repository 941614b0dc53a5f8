package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// counters of profiling runs, fetched into the cache, for the build of a kernel.
// Several runs, and all nodes of each, are added up there.
func (a *app) counters(ctx context.Context, name string, lists []string, cache string) ([]pipeline.Counters, error) {
	var all []pipeline.Counters
	for _, text := range lists {
		for one := range strings.SplitSeq(text, ",") {
			id, err := runID(one)
			if err != nil {
				return nil, err
			}
			found, err := a.countersOf(ctx, name, id, cache)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

// countersOf one run. Whether they are of the very build is found out when that is
// there; a run on another profile's kernel is refused before hours of work.
func (a *app) countersOf(ctx context.Context, name string, id uint64, cache string) ([]pipeline.Counters, error) {
	r, err := a.getRun(ctx, id)
	if err != nil {
		return nil, err
	}
	if want := name + kernelbroker.InstrumentedSuffix; r.GetKernelProfile() != want {
		return nil, fmt.Errorf("run %d was on the kernel %s: kernel %s is made from counters of %s (sbatch --kernel-profile=%s --kernel-profiling=pgo): %w",
			id, runKernel(r), name, want, name, kernelbroker.ErrPrecluded)
	}
	result, err := a.result(ctx, r)
	if err != nil {
		return nil, err
	}
	if result.PGO == nil || len(result.PGO.Archives) == 0 {
		return nil, fmt.Errorf("run %d took no counters: sbatch --kernel-profiling=pgo boots the instrumented kernel, which counts: %w",
			id, kernelbroker.ErrPrecluded)
	}
	var all []pipeline.Counters
	fetched := map[string]bool{}
	for _, archive := range result.PGO.Archives {
		file := archiveOf(r, archive)
		if file == nil {
			return nil, fmt.Errorf("run %d: node %q did not deliver its counters, %s: %w", id, archive.Node, archive.Name, kernelbroker.ErrNotFound)
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
			if err := a.fetch(ctx, file.GetDigest(), path); err != nil {
				return nil, fmt.Errorf("run %d: node %q: %w", id, archive.Node, err)
			}
		}
		all = append(all, pipeline.Counters{Run: id, Node: archive.Node, BuildID: archive.BuildID, Path: path})
	}
	a.say("run %d: counters of %d nodes", id, len(all))
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
