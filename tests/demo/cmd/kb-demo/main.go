// SPDX-License-Identifier: Apache-2.0

// Command kb-demo brings a virtual cluster up, runs the MITgcm replay on its
// own kernel and on the stock kernel, and checks all that it shows.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/tests/demo"
)

var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var o demo.Options
	cmd := &cobra.Command{
		Use:   "kb-demo",
		Short: "Show a job getting its kernel on a virtual cluster",
		Long: `kb-demo brings up a Slurm cluster of two virtual machines with Debian's own
kernel, runs the MITgcm I/O replay as an ordinary user on the kernel made for it
and on the stock kernel, and checks every claim against the nodes.

Exit codes: 0 all that was shown is true, 1 something was not or could not be
done, 2 wrong usage.`,
		Version: version, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo.Run(cmd.Context(), o, os.Stdout) },
	}
	usage := false
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { usage = true; return err })
	cmd.Flags().StringVar(&o.Dir, "dir", "", "the lab's folder (default build/lab/demo)")
	cmd.Flags().StringVar(&o.Kernel, "kernel", "stock", "the nodes' own kernel, a folder of build/kernels")
	cmd.Flags().IntVar(&o.IOScale, "io-scale", 1, "divide the replay's files and calls by this")
	cmd.Flags().StringVar(&o.JSON, "json", "", "also write the results to this file")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "keep the cluster after the checks and show it in a browser, until Ctrl-C")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kb-demo:", err)
		if usage {
			os.Exit(2)
		}
		if !errors.Is(err, demo.ErrUntrue) {
			fmt.Fprintln(os.Stderr, "kb-demo: not finished")
		}
		os.Exit(1)
	}
}
