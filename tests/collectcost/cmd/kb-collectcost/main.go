// SPDX-License-Identifier: Apache-2.0

// Command kb-collectcost measures what the collectors of profiling runs cost the
// jobs that they look at.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/tests/collectcost"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kb-collectcost:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o collectcost.Options
	var percent float64
	var out string
	cmd := &cobra.Command{
		Use:   "kb-collectcost",
		Short: "Measure what the collectors of profiling runs cost jobs",
		Long: `kb-collectcost runs the same jobs without and with collectors, by turns, on a
kernel in a guest whose clock counts instructions: system calls, io, both, and
noise, each without a bound and with the default budget of agent.yaml. It prints
what they add to the instructions of the whole machine, to the time and to the
job's CPU time, with the spread over the rounds, and compares with the goals. A
goal that is not met is a result, not an error.

Exit codes: 0 measured, 1 something did not work.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Budget = percent / 100
			return measure(cmd.Context(), o, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kernel, "kernel", "build/kernels/stock", "folder of the kernel, one that has what collectors need")
	f.StringVar(&o.Plugin, "plugin", "build/measure/kbcount.so", "plugin that counts")
	f.StringVar(&o.Programs, "programs", "build/workloads", "folder of the workloads' programs")
	f.StringVar(&o.Known, "known", "kernel-broker/agent/collect/testdata/known.c", "source of the loop")
	f.StringSliceVar(&o.Only, "only", nil, "names of jobs: hpcc, mitgcm-replay, mitgcm-replay-dense, syscall-loop (default all)")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds")
	f.IntVar(&o.Parallel, "parallel", 1, "guests at a time; counts do not depend on it")
	f.Float64Var(&percent, "budget", 4, "budget in percent of the job's CPU time; 0 leaves those runs out")
	f.StringVar(&o.Dir, "dir", "build/collectcost", "folder of the run")
	f.StringVar(&out, "json", "build/bench-collect.json", "file for the results")
	cmd.AddCommand(&cobra.Command{
		Use: "guest", Short: "The part inside of a guest", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return collectcost.Guest(cmd.Context(), os.Stdout) },
	})
	return cmd
}

func measure(ctx context.Context, o collectcost.Options, out string) error {
	if o.Rounds < 1 || o.Parallel < 1 {
		return errors.New("--rounds and --parallel: at least 1")
	}
	kernel, err := build.ReadManifest(o.Kernel)
	if err != nil {
		return fmt.Errorf("kernel: %w: make kernels", err)
	}
	result, err := collectcost.Run(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	result.Kernel = kernel.Release
	result.Command = strings.Join(append([]string{"kb-collectcost"}, os.Args[1:]...), " ")
	return errors.Join(result.Print(os.Stdout), result.Write(out))
}
