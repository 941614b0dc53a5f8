// SPDX-License-Identifier: Apache-2.0

// Command kb-authcost measures what it adds to a call to know who makes it,
// judge that and record it.
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
	"time"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/tests/authcost"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var o authcost.Options
	var out string
	cmd := &cobra.Command{
		Use:   "kb-authcost",
		Short: "Measure what authorisation adds to a call",
		Long: `kb-authcost makes calls to a broker that neither asks who makes them, judges nor
records, and the same calls to one that does: on the broker's host by its socket,
and over the network with real MUNGE credentials. Both are in one process of the
benchmark of kernel-broker/rpc, in rounds that take turns. It prints the median of
the rounds' medians with their range, and writes all as JSON. A goal that is not
met is a result, not an error.

  read     what anybody may ask; nothing is recorded
  judged   what the policy is asked for
  change   what changes something: its record is on the disk first

Exit codes: 0 measured, 1 something did not work.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return measure(cmd.Context(), o, out) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 10, "rounds of all calls")
	f.DurationVar(&o.Time, "time", time.Second, "for each call and way in a round")
	f.StringVar(&o.Root, "root", ".", "folder of the repository")
	f.StringVar(&o.Go, "go", "go", "go command")
	f.StringVar(&out, "json", "build/bench-authorisation.json", "file for the results")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kb-authcost:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, o authcost.Options, out string) error {
	var err error
	if o.Root, err = filepath.Abs(o.Root); err != nil {
		return err
	}
	if o.Rounds < 1 {
		return fmt.Errorf("--rounds %d: at least one is needed", o.Rounds)
	}
	result, err := authcost.Run(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	result.Command = strings.Join(append([]string{"kb-authcost"}, os.Args[1:]...), " ")
	result.Machine = fmt.Sprintf("%d CPUs", runtime.NumCPU())
	return errors.Join(result.Print(os.Stdout), result.Write(out))
}
