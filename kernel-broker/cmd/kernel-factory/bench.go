package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	reports "github.com/kernelbroker/kernelbroker/kernel-broker/factory/report"
)

const benchLong = `Build every kernel that catalog/benches/NAME.yaml names, and Debian's own, run
every workload on each of them, and put the results side by side: sizes,
instructions for each operation, each application on every other one's kernel,
and what the kernels were to reach. Nothing is done that was done before; a run
that was killed goes on where it was.

FOLDER gets report.json, report.html and report.txt, and the last of them is
printed. The exit code is 0 whatever the figures say.`

func benchCommand(failed *bool) *cobra.Command {
	var o pipeline.Options
	var out string
	var parallel int
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
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			*failed = true
			return bench(cmd, args[0], o, parallel, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Catalog, "catalog", "catalog", "folder with benches/, kernels/, fragments/ and workloads/")
	f.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "compilers at a time")
	f.IntVar(&parallel, "parallel", 1, "steps at a time")
	f.StringVar(&o.Programs, "programs", "", "folder of the workloads' programs")
	f.StringVar(&o.Plugin, "plugin", "", "the emulator's plugin, kbcount.so")
	addFlags(cmd, &out, &o.Cache)
	return cmd
}

func bench(cmd *cobra.Command, name string, o pipeline.Options, parallel int, out string) error {
	plan, err := pipeline.LoadPlan(o.Catalog, name)
	if err != nil {
		return err
	}
	if err := complete(&o, name); err != nil {
		return err
	}
	s, err := pipeline.OpenSideBySide(cmd.Context(), plan, o)
	if err != nil {
		return err
	}
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

// complete fills in what is not given on the command line.
func complete(o *pipeline.Options, name string) error {
	if o.Cache == "" {
		dir, err := factory.DefaultCacheDir()
		if err != nil {
			return err
		}
		o.Cache = dir
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	o.Locate(executable)
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	o.Machine = fmt.Sprintf("%s, %d CPUs", host, runtime.NumCPU())
	o.Command, o.Builder = filepath.Base(executable)+" bench "+name, filepath.Base(executable)
	return o.Absolute()
}
