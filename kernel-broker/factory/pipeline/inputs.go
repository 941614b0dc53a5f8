// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
)

// CheckInputs reads the files that steps read only after hours of compilation, as those steps will: a mistake in one of them shows before the
// first step.
func (o Options) CheckInputs(ctx context.Context) error {
	recipe, err := build.LoadRecipe(o.Catalog, o.Name)
	if err != nil {
		return err
	}
	recipe = o.changed(recipe)
	if recipe.Slimming == build.SlimmingTrace && (recipe.Training == "" || !o.slimmed()) {
		if _, err := slim.ReadKeepLists(os.DirFS(filepath.Join(o.Catalog, "keep"))); err != nil {
			return fmt.Errorf("kernel %q: %w", o.Name, err)
		}
		if len(o.Nodes) > 0 {
			if _, _, err := slim.ReadHardware(o.Nodes, o.Aliases); err != nil {
				return fmt.Errorf("kernel %q: %w", o.Name, err)
			}
		}
	}
	for _, c := range o.Counters {
		if err := eachCounter(ctx, c.Path, func(*tar.Header, io.Reader) error { return nil }); err != nil {
			return fmt.Errorf("run %d, node %q: %w", c.Run, c.Node, err)
		}
	}
	if recipe.Optimisation != build.OptimiseAutoFDO {
		return nil // Open refuses samples
	}
	for _, s := range o.Samples {
		if err := checkSamples(ctx, autofdo.Tools{Compiler: recipe.Compiler}, recipe.Sampling().Probes, s.Path); err != nil {
			return fmt.Errorf("kernel %q: %w", o.Name, err)
		}
	}
	return nil
}

// checkSamples finds out whether perf's data name their kernel and have branches, and whether a profile is one, of what the
// recipe marks: probes or lines.
func checkSamples(ctx context.Context, tools autofdo.Tools, probes bool, path string) (err error) {
	recorded, err := isPerf(path)
	if err != nil {
		return err
	}
	if recorded {
		return autofdo.CheckPerf(ctx, path)
	}
	dir, err := os.MkdirTemp("", "kernel-factory-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	merged := filepath.Join(dir, autofdo.ProfileFile)
	if err := tools.Merge(ctx, []autofdo.Weighted{{Path: path, Weight: 1}}, merged); err != nil {
		return err
	}
	of, err := autofdo.OfProbes(merged)
	if err == nil && of != probes {
		err = fmt.Errorf("%s: its kernel was built with branches.probes %t, and the recipe says %t: record on a kernel of this recipe: %w",
			path, of, probes, ErrOtherKernel)
	}
	return err
}
