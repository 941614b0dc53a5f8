// SPDX-License-Identifier: Apache-2.0

// Command kb-kernels puts kernels side by side under all workloads.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/tests/bench/sidebyside"
)

const long = `Build every kernel that catalog/benches/NAME.yaml names, and Debian's own, run
every workload on each of them, and put the results side by side: sizes,
instructions for each operation, each application on every other one's kernel,
and what the kernels were to reach. Nothing is done that was done before; a run
that was killed goes on where it was.

FOLDER gets report.json, report.html and report.txt, and the last of them is
printed. The exit code is 0 whatever the figures say.

With --wall each workload's wall time is taken too, N times on each kernel, by
turns in an order that is left to chance: on this host's own processor where KVM
works, else in the emulator, whose time decides nothing. The machine should have
nothing else to do; a spread stands beside each figure and tells if it had.`

var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run returns the exit code.
func run(ctx context.Context, args []string) int {
	var o pipeline.Options
	var out string
	var parallel, wall int
	started := false
	cmd := &cobra.Command{
		Use:     "kb-kernels NAME --out FOLDER",
		Short:   "Put kernels side by side under all workloads",
		Long:    long,
		Example: "  kb-kernels kernels --out build/bench-kernels",
		Version: version, SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if o.Jobs < 1 || parallel < 1 {
				return errors.New("--jobs and --parallel: at least 1")
			}
			return checkWall(wall, parallel)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			started = true
			return bench(cmd.Context(), args[0], o, parallel, wall, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Catalog, "catalog", "", "folder with benches/, kernels/, fragments/ and workloads/ (default ./catalog if only the caller and root can write it, else the installed one)")
	f.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "compilers at a time")
	f.IntVar(&parallel, "parallel", 1, "steps at a time")
	f.IntVar(&wall, "wall", 0, "take wall time too, in this many rounds (0: do not)")
	f.StringVar(&o.Programs, "programs", "", "folder of the workloads' programs")
	f.StringVar(&o.Plugin, "plugin", "", "the emulator's plugin, kbcount.so")
	f.StringVar(&out, "out", "", "folder for the result")
	f.StringVar(&o.Cache, "cache", "", "cache folder (default $KB_CACHE, or kernel-broker in the user's cache)")
	_ = cmd.MarkFlagRequired("out") // defined in the lines above
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "kb-kernels:", err)
	if started {
		return 1
	}
	return 2
}

func checkWall(rounds, parallel int) error {
	switch {
	case rounds == 0:
		return nil
	case rounds < sidebyside.LeastRounds || rounds%2 != 0:
		return fmt.Errorf("--wall %d: an even number of at least %d, since each round is run backwards too", rounds, sidebyside.LeastRounds)
	case parallel > 1:
		return errors.New("--wall: not with --parallel, since what runs beside a kernel would be in its time")
	}
	return nil
}

func bench(ctx context.Context, name string, o pipeline.Options, parallel, wall int, out string) error {
	program := filepath.Base(os.Args[0])
	o.Command, o.Builder = program+" "+name, program
	if wall > 0 {
		o.Command += fmt.Sprintf(" --wall %d", wall)
	}
	if err := o.Complete(func(format string, args ...any) { fmt.Fprintf(os.Stderr, program+": "+format+"\n", args...) }); err != nil {
		return err
	}
	plan, err := sidebyside.LoadPlan(o.Catalog, name)
	if err != nil {
		return err
	}
	s, err := sidebyside.Open(ctx, plan, o)
	if err != nil {
		return err
	}
	s.Wall = wall
	printer := &graph.Printer{Out: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	runner := &graph.Runner{Store: pipeline.StoreIn(o.Cache), Parallel: parallel, Observe: printer.Observe}
	folder, err := s.Run(ctx, runner)
	if err != nil {
		return err
	}
	return sidebyside.Copy(folder, out, os.Stdout)
}
