// SPDX-License-Identifier: Apache-2.0

// Command kernel-factory makes the kernels of a catalog.
//
// Exit codes: 0 done, 1 the work failed, 2 wrong usage.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
)

// version is set by the linker.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run returns the exit code.
func run(ctx context.Context, args []string) int {
	failed := false
	root := rootCommand(&failed)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case failed:
		fmt.Fprintf(os.Stderr, "kernel-factory: %v\n", err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "kernel-factory: %v\nTry 'kernel-factory --help'.\n", err)
	return 2
}

func rootCommand(failed *bool) *cobra.Command {
	root := &cobra.Command{
		Use:           "kernel-factory",
		Short:         "Make the kernels that the catalog describes",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("say what to do: build, distribution or step")
		},
	}
	root.AddCommand(buildCommand(failed), distributionCommand(failed), stepCommand(failed))
	return root
}

func buildCommand(failed *bool) *cobra.Command {
	var catalog, kernel, out, cache string
	var jobs int
	var quick bool
	cmd := &cobra.Command{
		Use:   "build --kernel NAME --out FOLDER",
		Short: "Build a kernel from its recipe, or find it in the cache",
		Long: `Build the kernel of catalog/kernels/NAME.yaml: tinyconfig with the recipe's
fragments laid over it, checked that every option asked for survived, built
reproducibly. A kernel whose recipe has training data is slimmed and optimised by
these, without a run. FOLDER gets bzImage, config, System.map and kernel.json, and
the report (report.json, report.html) of a kernel that is the very one measured. A
kernel whose inputs did not change is taken from the cache.

With --quick it is slimmed, and compiled at -O2 by gcc without its profile: a few
minutes, where clang's optimisation at the link takes three times as long.`,
		Example: "  kernel-factory build --catalog catalog --kernel mitgcm --out build/kernels/mitgcm",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if jobs < 1 {
				return fmt.Errorf("--jobs %d: at least 1", jobs)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			*failed = true
			places := pipeline.Options{Catalog: catalog, Cache: cache}
			if err := places.Complete(build.Progress{Out: os.Stderr, Kernel: kernel}.Say); err != nil {
				return err
			}
			builder, err := newBuilder(places.Catalog, kernel, places.Cache, jobs)
			if err != nil {
				return err
			}
			recipe, err := build.LoadRecipe(places.Catalog, kernel)
			if err != nil {
				return err
			}
			if quick {
				recipe = recipe.Quick()
			}
			plan, err := builder.PlanRecipe(cmd.Context(), recipe)
			if err != nil {
				return err
			}
			if err := builder.CheckPackages(cmd.Context(), plan); err != nil {
				return err
			}
			kernels := pipeline.Factory{Builder: builder, Plan: plan}
			p := pipeline.Pipeline{Recipe: plan.Recipe, Kernels: kernels, Jobs: jobs}
			open := kernels.OpenTraining
			if quick {
				open = kernels.OpenSlimming
			}
			if p.Training, err = open(cmd.Context()); err != nil {
				return err
			}
			printer := graph.Printer{Out: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd()))}
			runner := &graph.Runner{Store: pipeline.StoreIn(builder.Cache.Dir), Parallel: 1, Observe: printer.Observe}
			// Earlier versions kept kernels there.
			old := filepath.Join(builder.Cache.Dir, "kernel", plan.Key)
			manifest, err := p.BuildGiven(cmd.Context(), runner, old, out, builder.Progress.Say)
			return report(manifest, out, err)
		},
	}
	cmd.Flags().StringVar(&catalog, "catalog", "", "folder with kernels/ and fragments/ (default ./catalog if only the caller and root can write it, else the installed one)")
	cmd.Flags().StringVar(&kernel, "kernel", "", "name of the recipe")
	cmd.Flags().IntVar(&jobs, "jobs", 2, "compilers at a time")
	cmd.Flags().BoolVar(&quick, "quick", false, "without the profile, at -O2")
	addFlags(cmd, &out, &cache)
	// The flag was defined in the lines above, so that this cannot fail.
	_ = cmd.MarkFlagRequired("kernel")
	return cmd
}

func distributionCommand(failed *bool) *cobra.Command {
	var out, cache string
	cmd := &cobra.Command{
		Use:   "distribution --out FOLDER",
		Short: "Take Debian's own kernel from its package, without installing it",
		Long: `Download the kernel package that linux-image-amd64 stands for, and take image,
configuration and the modules that a virtual node needs out of it. FOLDER gets
bzImage, config, kernel.json and modules/, with the order to load them in.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			*failed = true
			builder, err := newBuilder("", build.DistributionName, cache, 1)
			if err != nil {
				return err
			}
			result, err := builder.Distribution(cmd.Context(), out)
			if err == nil {
				how := "made"
				if result.Cached {
					how = "taken from the cache"
				}
				builder.Progress.Say("%s in %.1f s: %d bytes", how, result.Took.Seconds(), result.Manifest.Image.Size)
			}
			return report(result.Manifest, out, err)
		},
	}
	addFlags(cmd, &out, &cache)
	return cmd
}

func addFlags(cmd *cobra.Command, out, cache *string) {
	cmd.Flags().StringVar(out, "out", "", "folder for the result")
	cmd.Flags().StringVar(cache, "cache", "", "cache folder (default $KB_CACHE, or kernel-broker in the user's cache)")
	_ = cmd.MarkFlagRequired("out") // defined in the lines above
}

func newBuilder(catalog, kernel, cache string, jobs int) (*build.Builder, error) {
	if cache == "" {
		dir, err := build.DefaultCacheDir()
		if err != nil {
			return nil, err
		}
		cache = dir
	}
	return &build.Builder{
		Catalog:    catalog,
		Cache:      build.Cache{Dir: cache},
		Jobs:       jobs,
		FindSource: build.FindSource,
		Progress: build.Progress{
			Out:    os.Stderr,
			Kernel: kernel,
		},
	}, nil
}

// report prints the one line of result; everything else goes to stderr.
func report(manifest build.Manifest, out string, err error) error {
	if err == nil {
		_, err = fmt.Printf("%s\t%s\t%s\t%s\n", manifest.Name, manifest.Release, manifest.BuildID, out)
	}
	return err
}
