// SPDX-License-Identifier: Apache-2.0

// Command kb-bench measures what a switch costs on the virtual cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/tests/bench"
)

var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var o bench.Options
	usage := false
	cmd := &cobra.Command{
		Use:   "kb-bench",
		Short: "Measure what a switch costs on a virtual cluster",
		Long: `kb-bench brings up two virtual clusters, one with the product and one of plain
Slurm, and measures by turns: sbatch to RUNNING with a switch and its phases, a
hand-made kexec, a reset, a job that finds its kernel running, and stock jobs on
both. It prints medians and quartiles and compares them with the goals. A goal
that is not met is a result, not an error.

The nodes' own kernel is by default suite-stock, a slim one that boots fast.
With --kernel stock it is Debian's, which is what sites have.

Exit codes: 0 measured, 1 something did not work, 2 wrong usage.`,
		Version: version, SilenceUsage: true, SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			err := cobra.NoArgs(cmd, args)
			usage = err != nil
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				usage = true
				return err
			}
			return bench.Run(cmd.Context(), o, os.Stdout, os.Stderr)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { usage = true; return err })
	cmd.Flags().IntVar(&o.Runs, "runs", 10, "how often to measure everything, after one warm-up")
	cmd.Flags().IntVar(&o.Nodes, "nodes", 1, "nodes of each cluster and job, 1 or 2")
	cmd.Flags().StringVar(&o.Kernel, "kernel", "suite-stock", "the nodes' own kernel, a folder of build/kernels")
	cmd.Flags().StringVar(&o.Dir, "dir", filepath.Join("build", "lab", "bench"), "folder of the two labs")
	cmd.Flags().StringVar(&o.JSON, "json", filepath.Join("build", "bench-switch.json"), "file for the results")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kb-bench:", err)
		if usage {
			os.Exit(2)
		}
		os.Exit(1)
	}
}
