// SPDX-License-Identifier: Apache-2.0

// Command kb-buildcost measures what building a kernel with a profile costs
// against plain make.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/tests/buildcost"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var o buildcost.Options
	var out string
	cmd := &cobra.Command{
		Use:   "kb-buildcost",
		Short: "Measure what a kernel's build costs against plain make",
		Long: `kb-buildcost makes, in one run and with an empty cache: plain make of a kernel's
configuration, a first build of the kernel with its profile, boot test and
measurements, a second profile of the same configuration, and plain make again.
The ratios of processor time are compared with the goals. A goal that is not met
is a result, not an error. The source is not fetched and unpacked anew.

Exit codes: 0 measured, 1 something did not work.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return measure(cmd.Context(), o, out) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Kernel, "kernel", "small", "recipe, one with a profile")
	f.StringVar(&o.Second, "second", "postmark", "workload of the second profile")
	f.StringVar(&o.Kernelctl, "kernelctl", "build/bin/kernelctl", "program that builds")
	f.StringVar(&o.Catalog, "catalog", "catalog", "folder with the recipe")
	f.StringVar(&o.Dir, "dir", "build/buildcost", "folder of the run")
	f.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "compilers at a time")
	f.StringVar(&out, "json", "build/bench-build.json", "file for the results")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kb-buildcost:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, o buildcost.Options, out string) error {
	cache, err := build.DefaultCacheDir()
	if err != nil {
		return err
	}
	o.Source = filepath.Join(cache, "source")
	for _, path := range []*string{&o.Dir, &o.Catalog, &o.Kernelctl} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	result, err := buildcost.Run(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	result.Command = strings.Join(append([]string{"kb-buildcost"}, os.Args[1:]...), " ")
	result.Machine = fmt.Sprintf("%d CPUs", runtime.NumCPU())
	if err := result.Judge(); err != nil {
		return err
	}
	return errors.Join(result.Print(os.Stdout), result.Write(out))
}
