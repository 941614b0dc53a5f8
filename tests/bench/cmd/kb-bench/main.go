// SPDX-License-Identifier: Apache-2.0

// Command kb-bench measures what the product costs: the switch, building
// kernels, collectors, and the broker at thousands of nodes; and what kernels do to the
// ocean model, to messages and to a core's noise.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/tests/bench"
	"github.com/kernelbroker/kernelbroker/tests/bench/buildcost"
	"github.com/kernelbroker/kernelbroker/tests/bench/collectcost"
	"github.com/kernelbroker/kernelbroker/tests/bench/corenoise"
	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
	"github.com/kernelbroker/kernelbroker/tests/bench/mpi"
	"github.com/kernelbroker/kernelbroker/tests/bench/ocean"
	"github.com/kernelbroker/kernelbroker/tests/bench/scale"
)

var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cmd := &cobra.Command{
		Use:   "kb-bench",
		Short: "Measure what the product costs",
		Long: `kb-bench measures something beside its reference in one run, prints tables and
compares with the goals. --json FILE.json gets all figures, and FILE.txt the
samples, by which benchstat compares two runs. A goal that is not met is a result,
not an error.

Exit codes: 0 measured, 1 something did not work.`,
		Version: version, SilenceUsage: true, SilenceErrors: true,
	}
	cmd.AddCommand(switchCommand(), buildCommand(), collectCommand(), mitgcmCommand(), mpiCommand(), coresCommand(), scaleCommand(), faultsCommand())
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kb-bench:", err)
		os.Exit(1)
	}
}

func switchCommand() *cobra.Command {
	var o bench.Options
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Measure what a switch costs on a virtual cluster",
		Long: `kb-bench switch brings up two virtual clusters, one with the product and one of
plain Slurm, and measures by turns: sbatch to RUNNING with a switch and its
phases, a hand-made kexec, a reset, a job that finds its kernel running, and stock
jobs on both.

The nodes' own kernel is by default suite-stock, a slim one that boots fast.
With --kernel stock it is Debian's, which is what sites have.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return bench.Run(cmd.Context(), o, os.Stdout, os.Stderr)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Runs, "runs", 10, "how often to measure everything, after one warm-up")
	f.IntVar(&o.Nodes, "nodes", 1, "nodes of each cluster and job, 1 or 2")
	f.StringVar(&o.Kernel, "kernel", "suite-stock", "the nodes' own kernel, a folder of build/kernels")
	f.StringVar(&o.Dir, "dir", filepath.Join("build", "lab", "bench"), "folder of the two labs")
	f.StringVar(&o.JSON, "json", filepath.Join("build", "bench-switch.json"), "file for the results")
	return cmd
}

func buildCommand() *cobra.Command {
	var o buildcost.Options
	var out string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Measure what a kernel's build costs against plain make",
		Long: `kb-bench build makes, in one run and with an empty cache: plain make of a kernel's
configuration, a first build of the kernel with its profile, boot test and
measurements, a second profile of the same configuration, a first build by clang
and branches (AutoFDO) in place of counters, and plain make again.
The ratios of processor time are compared with the goals. The source is not
fetched and unpacked again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			result, err := buildcost.Run(cmd.Context(), o, os.Stderr)
			if err != nil {
				return err
			}
			result.Command, result.Machine = command(), fmt.Sprintf("%d CPUs", runtime.NumCPU())
			return show(out, &result)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kernel, "kernel", "small", "recipe, one with a profile")
	f.StringVar(&o.Second, "second", "postmark", "workload of the second profile")
	f.StringVar(&o.Kernelctl, "kernelctl", "build/bin/kernelctl", "program that builds")
	f.StringVar(&o.Catalog, "catalog", "catalog", "folder with the recipe")
	f.StringVar(&o.Dir, "dir", "build/buildcost", "folder of the run")
	f.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "compilers at a time")
	f.StringVar(&out, "json", "build/bench-build.json", "file for the results")
	return cmd
}

func collectCommand() *cobra.Command {
	var o collectcost.Options
	var percent float64
	var out string
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Measure what the collectors of profiling runs cost jobs",
		Long: `kb-bench collect runs the same jobs without and with collectors, by turns, on a
kernel in a guest whose clock counts instructions: system calls, io, both, and
noise, each without a bound and with the default budget of agent.yaml. It prints
what they add to the instructions of the whole machine, to the time and to the
job's CPU time.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rounds < 1 || o.Parallel < 1 {
				return errors.New("--rounds and --parallel: at least 1")
			}
			kernel, err := build.ReadManifest(o.Kernel)
			if err != nil {
				return fmt.Errorf("kernel: %w: make kernels", err)
			}
			o.Budget = percent / 100
			result, err := collectcost.Run(cmd.Context(), o, os.Stderr)
			if err != nil {
				return err
			}
			result.Kernel, result.Command = kernel.Release, command()
			return show(out, &result)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kernel, "kernel", "build/kernels/stock", "folder of the kernel, one that has what collectors need")
	f.StringVar(&o.Plugin, "plugin", "build/measure/kbcount.so", "plugin that counts")
	f.StringVar(&o.Programs, "programs", "build/workloads", "folder of the workloads' programs")
	f.StringVar(&o.Known, "known", "kernel-broker/agent/collect/testdata/known.c", "source of the loop")
	f.StringVar(&o.NAS, "nas", "", "folder with programs of the NAS parallel benchmarks: CG, LU, EP and MG, one class each (cg.S)")
	f.StringSliceVar(&o.Only, "only", nil, "names of jobs: hpcc, mitgcm-replay, mitgcm-replay-dense, ping-pong, syscall-loop, and with --nas nas-cg, nas-lu, nas-ep, nas-mg (default all)")
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

func mitgcmCommand() *cobra.Command {
	var o ocean.Options
	var out string
	cmd := &cobra.Command{
		Use:   "mitgcm",
		Short: "Run the real MITgcm on stock and on its kernel",
		Long: `kb-bench mitgcm builds an experiment of MITgcm from a checkout of its source, and
runs it as jobs of a virtual cluster, by turns on the nodes' own kernel and on
that of the profile mitgcm. The model's monitor and all fields that it writes must
be the same in all jobs; the exit code is 1 if they are not.

Times are an emulator's. Most of them is computation, which no kernel shortens.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, path := range []*string{&o.Source, &o.Dir} {
				absolute, err := filepath.Abs(*path)
				if err != nil {
					return err
				}
				*path = absolute
			}
			result, err := ocean.Run(cmd.Context(), o, os.Stderr)
			if err != nil {
				return err
			}
			result.Command = command()
			return show(out, result)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Source, "source", "", "folder with a checkout of MITgcm")
	f.StringVar(&o.Experiment, "experiment", "tutorial_global_oce_latlon", "folder of its verification/")
	f.StringVar(&o.Kernel, "kernel", "stock", "the nodes' own kernel, a folder of build/kernels")
	f.IntVar(&o.Runs, "runs", 3, "jobs on each kernel")
	f.IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "compilers at a time")
	f.StringVar(&o.Dir, "dir", "build/bench-mitgcm", "folder of the run")
	f.StringVar(&out, "json", "build/bench-mitgcm.json", "file for the results")
	_ = cmd.MarkFlagRequired("source")
	return cmd
}

func mpiCommand() *cobra.Command {
	var o mpi.Options
	var out string
	cmd := &cobra.Command{
		Use:   "mpi",
		Short: "Measure MPI messages between two nodes, by kernel",
		Long: `kb-bench mpi runs mpi-pingpong as jobs of two nodes of a virtual cluster, on the
nodes' own kernel and on the others by turns: the latency of 0 to 64 bytes and the
bandwidth of messages up to 16,000 bytes, over TCP. The program compares what
arrives.

Times are an emulator's and noisy. Each kernel's figures are divided by those of
the nodes' own kernel in the same round; the table has the quartiles of these
ratios.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := mpi.Run(cmd.Context(), o, os.Stderr)
			if err != nil {
				return err
			}
			result.Command = command()
			return show(out, result)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Own, "kernel", "stock", "the nodes' own kernel, a folder of build/kernels")
	f.StringSliceVar(&o.Kernels, "kernels", []string{"slim", "mitgcm"}, "the others, folders of build/kernels")
	f.IntVar(&o.Rounds, "rounds", 6, "jobs on each kernel")
	f.IntVar(&o.Samples, "samples", 25, "samples of each size in a job")
	f.IntVar(&o.Messages, "messages", 32, "messages of a sample, a multiple of 16")
	f.StringVar(&o.Program, "program", "build/mpi/mpi-pingpong", "program, linked with MPICH")
	f.StringVar(&o.Dir, "dir", "build/bench-mpi", "folder of the run")
	f.StringVar(&out, "json", "build/bench-mpi.json", "file for the results")
	return cmd
}

func coresCommand() *cobra.Command {
	var o corenoise.Options
	var out string
	cmd := &cobra.Command{
		Use:   "cores",
		Short: "Count what interrupts an application, without and with a core for the system",
		Long: `kb-bench cores boots one kernel in guests with four cores, by turns without and with
a core that is kept for the system. On the other three a thread computes, and the
collector noise counts what takes the core away from it. After that rtla osnoise
counts what takes it from a thread of the kernel.

How often something comes is the guest's; how long it takes would be the
emulator's, and is not shown.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rounds < 1 || o.Seconds < 1 {
				return errors.New("--rounds and --seconds: at least 1")
			}
			kernel, err := build.ReadManifest(o.Kernel)
			if err != nil {
				return fmt.Errorf("kernel: %w: make bench-cores", err)
			}
			result, err := corenoise.Run(cmd.Context(), o, os.Stderr)
			if err != nil {
				return err
			}
			result.Kernel, result.Command = kernel.Release, command()
			return show(out, result)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kernel, "kernel", "build/kernels/bench-cores", "folder of the kernel, one with the fragments cores, profiling and osnoise")
	f.StringVar(&o.Known, "known", "kernel-broker/agent/collect/testdata/known.c", "source of the thread that computes")
	f.IntVar(&o.Rounds, "rounds", 5, "guests without and with")
	f.IntVar(&o.Seconds, "seconds", 10, "how long the threads compute, and how long rtla looks")
	f.StringVar(&o.Dir, "dir", "build/corenoise", "folder of the run")
	f.StringVar(&out, "json", "build/bench-cores.json", "file for the results")
	var milliseconds int
	guest := &cobra.Command{
		Use: "guest", Short: "The part inside of a guest", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return corenoise.Guest(cmd.Context(), milliseconds) },
	}
	guest.Flags().IntVar(&milliseconds, "milliseconds", 1000, "how long the threads compute")
	cmd.AddCommand(guest)
	return cmd
}

func faultsCommand() *cobra.Command {
	var o scale.FaultOptions
	var nodes int
	var out string
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Measure how one broker follows another",
		Long: `kb-bench faults runs two brokers and an etcd of three members, in processes of
their own, for simulated nodes on which jobs run all the time. Again and again it
kills the broker that acts (kill), stops it (stop), cuts it off from etcd (cut),
or kills a member of etcd that follows (member) or leads (leader). It prints how
long it takes until the other broker acts and answers, and counts lost jobs,
drained nodes, boots and kernels that should not be, and what the old broker does
afterwards.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Nodes = []int{nodes}
			result, err := scale.RunFaults(cmd.Context(), o, os.Stderr)
			if result == nil || len(result.Kinds) == 0 {
				return err
			}
			result.Command, result.Machine = command(), fmt.Sprintf("%d CPUs", runtime.NumCPU())
			return errors.Join(err, show(out, result))
		},
	}
	f := cmd.Flags()
	f.IntVar(&nodes, "nodes", 200, "number of nodes, in jobs of ten")
	f.IntVar(&o.Times, "times", 30, "how often each fault happens")
	f.StringSliceVar(&o.Kinds, "kinds", scale.FaultKinds(), "which faults")
	f.DurationVar(&o.Stop, "stop", 30*time.Second, "how long a broker is stopped or cut off")
	f.StringVar(&o.Broker, "broker", "build/bin/kernel-broker", "the broker")
	f.StringVar(&o.Slurm, "slurm", "build/bin/kb-slurm", "program that stands for Slurm's commands")
	f.StringVar(&o.Dir, "dir", "build/faults", "folder of the run")
	f.StringVar(&out, "json", "build/bench-faults.json", "file for the results")
	return cmd
}

func scaleCommand() *cobra.Command {
	var o scale.Options
	var out string
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure what the broker costs at thousands of nodes",
		Long: `kb-bench scale runs the built broker, with TLS and its embedded etcd, for thousands
of simulated nodes and a simulated slurmctld: all agents connect at once, nothing
happens, a job of ten nodes, a wave of jobs on a quarter of the nodes, a broker
that is killed in such a wave, a restart. The nodes are the product's own agents,
in this process; their boots take simulated time.

Processor time is the broker's own. Seconds are those of a machine that broker and
agents share.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := scale.Run(cmd.Context(), o, os.Stderr)
			if result == nil || len(result.Runs) == 0 {
				return err
			}
			result.Command, result.Machine = command(), fmt.Sprintf("%d CPUs", runtime.NumCPU())
			return errors.Join(err, show(out, result))
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Nodes, "nodes", []int{1000, 10000}, "numbers of nodes, growing")
	f.StringVar(&o.Broker, "broker", "build/bin/kernel-broker", "the broker")
	f.StringVar(&o.Slurm, "slurm", "build/bin/kb-slurm", "program that stands for Slurm's commands")
	f.StringVar(&o.Profiles, "pprof", "", "folder for profiles of the broker's processor time and memory, by phase (default none)")
	f.StringVar(&o.Dir, "dir", "build/scale", "folder of the run")
	f.StringVar(&out, "json", "build/bench-scale.json", "file for the results")
	return cmd
}

// shown is a result with tables for people and samples for benchstat.
type shown interface {
	Print(out io.Writer) error
	Series() []figures.Series
}

// show prints a result and leaves it in the file.
func show(file string, r shown) error {
	return errors.Join(r.Print(os.Stdout), figures.Write(file, r, r.Series()))
}

func command() string { return strings.Join(append([]string{"kb-bench"}, os.Args[1:]...), " ") }
