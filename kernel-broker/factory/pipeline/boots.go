// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
)

// bootOnly is the way to a candidate that is booted, and not compared with others.
func (p *Pipeline) bootOnly() (*graph.Graph, error) {
	if !p.Recipe.Optimisation.Counted() || p.Bench == nil {
		return nil, fmt.Errorf("kernel %q: its recipe has no profile of objects (optimisation: pgo)", p.Recipe.Name)
	}
	b := &builder{p: p}
	b.tries("boot", "", b.kernels(), p.Bench.Boot)
	return b.graph()
}

// Profiled lists the objects that have a profile; run is the name of the status.
func (p *Pipeline) Profiled(ctx context.Context, runner *graph.Runner, run string) ([]string, error) {
	g, err := p.bootOnly()
	if err != nil {
		return nil, err
	}
	results, err := runner.Run(ctx, run, g, "profile")
	if err != nil {
		return nil, err
	}
	files, err := pgo.ReadFolder(filepath.Join(results["profile"].Files(), profileDir))
	if err != nil {
		return nil, err
	}
	var objects []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		object := name + ".o"
		if !slices.ContainsFunc(p.Recipe.Exclude, func(e build.Exclusion) bool { return e.Object == object }) {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// Boots builds the candidate and boots it; what is wrong with it is a *Fault.
func (p *Pipeline) Boots(ctx context.Context, runner *graph.Runner, run string) error {
	g, err := p.bootOnly()
	if err != nil {
		return err
	}
	_, err = runner.Run(ctx, run, g, "boot")
	if found, rest := faults(err); len(found) > 0 && rest == nil {
		return &found[0]
	}
	return err
}
