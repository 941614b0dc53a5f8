// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/noise"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Where the guest's part finds what to do and leaves what was done.
const (
	planFile    = "/kernel-broker/plan.json"
	ranFile     = "ran.json"
	regionsFile = "regions"
	guestOut    = "/out"
	hierarchy   = "/sys/fs/cgroup"
)

// Guest runs the jobs of the plan, in the guest.
func Guest(ctx context.Context, log io.Writer) error {
	p, err := readPlan(planFile)
	if err != nil {
		return err
	}
	g := &guest{plan: p, log: log}
	for _, t := range p.turns() {
		if err := g.run(ctx, t); err != nil {
			return fmt.Errorf("round %d, collectors %s: %w", t.round, p.Setups[t.setup].Name(), err)
		}
	}
	text, err := json.Marshal(g.all)
	if err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(guestOut, ranFile), text, 0o644),
		os.WriteFile(filepath.Join(guestOut, regionsFile), []byte(g.regions.String()), 0o644),
	)
}

type guest struct {
	plan    plan
	log     io.Writer
	all     []ran
	regions strings.Builder
}

func (g *guest) run(ctx context.Context, t turn) error {
	number := len(g.all) + 1
	top := filepath.Join(hierarchy, fmt.Sprintf("job_%d", number))
	// A step below the job, as Slurm has it.
	step := filepath.Join(top, "step_0")
	if err := os.MkdirAll(step, 0o755); err != nil {
		return err
	}
	group, err := cgroup.Open(top)
	if err != nil {
		return err
	}
	folder, err := os.Open(step)
	if err != nil {
		return err
	}
	defer folder.Close()
	cmd, err := g.command(ctx, folder)
	if err != nil {
		return err
	}
	defer os.RemoveAll(cmd.Dir)
	// What one job left to be collected is no cost of the next.
	runtime.GC()

	markStart()
	collectors, err := g.collect(number, top, g.plan.Setups[t.setup])
	markEnd()
	if err != nil {
		return err
	}
	begin := time.Now()
	failed := marked(g.plan.Job.Marks, cmd.Run)
	elapsed := time.Since(begin)
	markStop()
	result, err := Finish(ctx, collectors)
	markEnd()
	if failed != nil {
		failed = fmt.Errorf("%s: %w: %s", cmd.Args, failed, cmd.Stdout)
	}
	used, unread := group.CPUTime()
	if err := errors.Join(failed, err, unread, g.proven(cmd.Dir)); err != nil {
		return err
	}
	one := ran{Round: t.round, Setup: t.setup, ElapsedNS: uint64(elapsed), JobNS: used.AllNS, Looked: looked(result)}
	one.Own = own(result, used.AllNS)
	g.all = append(g.all, one)
	// How often is asked for, and of no meaning here.
	fmt.Fprintf(&g.regions, "%d start 1\n%d job 1\n%d stop 1\n", regionStart, g.plan.Job.marker(), regionStop)
	setup := g.plan.Setups[t.setup]
	fmt.Fprintf(g.log, "%s, round %d, collectors %s, budget %s: %v\n", g.plan.Job.Name, t.round, setup.Name(), bound(setup.Budget), elapsed)
	return nil
}

// marked runs the job as a region, if it is not one itself.
func marked(itself bool, run func() error) error {
	if itself {
		return run()
	}
	markJob()
	defer markEnd()
	return run()
}

// command is the job, born into its cgroup.
func (g *guest) command(ctx context.Context, step *os.File) (*exec.Cmd, error) {
	dir, err := os.MkdirTemp("", "job")
	if err != nil {
		return nil, err
	}
	for name, text := range g.plan.Job.Files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	argv := g.plan.Job.Command
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), g.plan.Job.Environment...)
	said := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(step.Fd())}
	return cmd, nil
}

func (g *guest) collect(number int, top string, s Setup) (*collect.Run, error) {
	if len(s.Collectors) == 0 {
		return nil, nil
	}
	known := map[profiling.Collector]collect.Collector{
		profiling.CollectSyscalls: syscalls.Collector{}, profiling.CollectIO: files.Collector{}, profiling.CollectNoise: noise.Collector{},
	}
	wanted := make([]collect.Collector, 0, len(s.Collectors))
	for _, name := range s.Collectors {
		wanted = append(wanted, known[name])
	}
	folder, err := os.MkdirTemp("", "run")
	if err != nil {
		return nil, err
	}
	return collect.Start(collect.Request{
		Job: uint32(number), Node: "n1", Kernel: profiling.Kernel{Release: "measured"}, Cgroup: top, Folder: folder, Overhead: s.Budget,
	}, wanted, slog.New(slog.DiscardHandler))
}

// Finish waits for the collectors to see that the job is over. One that did not
// work, or not all the time, would make the figures too low.
func Finish(ctx context.Context, run *collect.Run) (profiling.Result, error) {
	if run == nil {
		return profiling.Result{}, nil
	}
	result, err := run.Result(ctx)
	if err != nil {
		return result, err
	}
	for _, r := range result.Refused {
		err = errors.Join(err, fmt.Errorf("refused: %s %s: %w", r.Collector, r.Part, &r.Unsupported))
	}
	for _, p := range result.Partial {
		err = errors.Join(err, fmt.Errorf("partial: %s: %s", p.Collector, p.Why))
	}
	return result, err
}

func (g *guest) proven(dir string) error {
	if g.plan.Job.Proof == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(dir, g.plan.Job.Proof))
	if err == nil && !strings.Contains(string(text), g.plan.Job.Words) {
		err = fmt.Errorf("file %q: has no %q", g.plan.Job.Proof, g.plan.Job.Words)
	}
	return err
}

// looked is the share of the collector that looked least; what never looks away
// has no account.
func looked(result profiling.Result) float64 {
	least := 1.0
	for _, c := range result.Coverage {
		if c.JobNS > 0 {
			least = min(least, float64(c.ObservedJobNS)/float64(c.JobNS))
		}
	}
	return least
}

// own account of the collectors, against what is left to the job without it.
func own(result profiling.Result, jobNS uint64) float64 {
	var cost float64
	counted := map[profiling.Collector]bool{}
	for _, c := range result.Coverage {
		cost += float64(c.CostNS)
		counted[c.Collector] = true
	}
	for _, o := range result.Overhead {
		if !counted[o.Collector] {
			cost += o.Share() * float64(jobNS)
		}
	}
	return cost / (float64(jobNS) - cost)
}
