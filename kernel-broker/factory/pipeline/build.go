// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

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
	_, err = runner.Run(ctx, p.Recipe.Name, g, until...)
	found, rest := faults(err)
	for _, fault := range found {
		failed, err := p.blame(fault)
		rest = errors.Join(rest, err)
		p.made = &failed
	}
	return p.made, rest
}

// ErrNeedsRun is in the error about a recipe that cannot be followed without
// running a kernel.
var ErrNeedsRun = errors.New("needs a run of its workload: kernelctl kernel build")

// BuildPlain makes a kernel that needs no run, or finds it in the folder old or
// in the runner's store, and leaves a copy of it in the folder out.
func (p *Pipeline) BuildPlain(ctx context.Context, runner *graph.Runner, old, out string) (build.Manifest, error) {
	name := p.Recipe.Name
	fail := func(err error) (build.Manifest, error) {
		return build.Manifest{}, fmt.Errorf("kernel %q: %w", name, err)
	}
	switch {
	case p.Recipe.Optimisation.Profiled():
		return fail(fmt.Errorf("optimisation %s %w", p.Recipe.Optimisation, ErrNeedsRun))
	case p.Recipe.Slimming == build.SlimmingTrace:
		return fail(fmt.Errorf("slimming %s %w", p.Recipe.Slimming, ErrNeedsRun))
	}
	dir := old
	if _, err := os.Stat(old); err != nil {
		g, err := p.Graph()
		if err != nil {
			return build.Manifest{}, err
		}
		results, err := runner.Run(ctx, name, g, "plain")
		if err != nil {
			return fail(err)
		}
		dir = results["plain"].Files()
	}
	manifest, err := build.ReadManifest(dir)
	if err != nil {
		return fail(err)
	}
	if err := manifest.Verify(dir); err != nil {
		return fail(fmt.Errorf("damaged in the cache, remove %s: %w", filepath.Dir(dir), err))
	}
	if err := build.Publish(dir, out, build.ImageFile, build.ConfigFile, build.SystemMapFile, build.ManifestFile); err != nil {
		return fail(err)
	}
	return manifest, nil
}
