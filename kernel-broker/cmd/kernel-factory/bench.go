// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	reports "github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

const benchLong = `Build every kernel that catalog/benches/NAME.yaml names, and Debian's own, run
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

func benchCommand(failed *bool) *cobra.Command {
	var o pipeline.Options
	var out string
	var parallel, wall int
	cmd := &cobra.Command{
		Use:     "bench NAME --out FOLDER",
		Short:   "Put kernels side by side under all workloads",
		Long:    benchLong,
		Example: "  kernel-factory bench kernels --out build/bench-kernels",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if o.Jobs < 1 || parallel < 1 {
				return errors.New("--jobs and --parallel: at least 1")
			}
			return checkWall(wall, parallel)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			*failed = true
			return bench(cmd, args[0], o, parallel, wall, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Catalog, "catalog", "", "folder with benches/, kernels/, fragments/ and workloads/ (default ./catalog, else the installed one)")
	f.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "compilers at a time")
	f.IntVar(&parallel, "parallel", 1, "steps at a time")
	f.IntVar(&wall, "wall", 0, "take wall time too, in this many rounds (0: do not)")
	f.StringVar(&o.Programs, "programs", "", "folder of the workloads' programs")
	f.StringVar(&o.Plugin, "plugin", "", "the emulator's plugin, kbcount.so")
	addFlags(cmd, &out, &o.Cache)
	return cmd
}

func checkWall(rounds, parallel int) error {
	switch {
	case rounds == 0:
		return nil
	case rounds < measure.LeastRounds || rounds%2 != 0:
		return fmt.Errorf("--wall %d: an even number of at least %d, since each round is run backwards too", rounds, measure.LeastRounds)
	case parallel > 1:
		return errors.New("--wall: not with --parallel, since what runs beside a kernel would be in its time")
	}
	return nil
}

func bench(cmd *cobra.Command, name string, o pipeline.Options, parallel, wall int, out string) error {
	program := filepath.Base(os.Args[0])
	o.Command, o.Builder = program+" bench "+name, program
	if wall > 0 {
		o.Command += fmt.Sprintf(" --wall %d", wall)
	}
	if err := o.Complete(); err != nil {
		return err
	}
	plan, err := pipeline.LoadPlan(o.Catalog, name)
	if err != nil {
		return err
	}
	s, err := pipeline.OpenSideBySide(cmd.Context(), plan, o)
	if err != nil {
		return err
	}
	s.Wall = wall
	printer := &graph.Printer{Out: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	runner := &graph.Runner{Store: pipeline.StoreIn(o.Cache), Parallel: parallel, Observe: printer.Observe}
	folder, err := s.Run(cmd.Context(), runner)
	if err != nil {
		return err
	}
	made, err := reports.ReadFolder(folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	return errors.Join(made.Write(out), made.WriteText(os.Stdout))
}
