// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// Options of a run.
type Options struct {
	// Kernel is a folder as the factory leaves it.
	Kernel string
	// Plugin is kbcount.so, Programs the folder of our own programs, Known the
	// source of the loop.
	Plugin, Programs, Known string
	// NAS is a folder with programs of the NAS parallel benchmarks, "" for none.
	NAS string
	// Only has names of jobs; none is all.
	Only []string
	// Rounds that count, after one that does not.
	Rounds int
	// Parallel guests: counts do not depend on what else the machine does.
	Parallel int
	// Budget is the share that agent.yaml has by default.
	Budget float64
	// Dir is the folder of the run. It is removed before.
	Dir string
}

// limit of a guest, in minutes: all jobs of all rounds, emulated, on a machine
// that may be busy.
const limit = 240

// Run boots a guest for each job. What the guests say goes to progress.
func Run(ctx context.Context, o Options, progress io.Writer) (Result, error) {
	jobs, err := o.jobs()
	if err != nil {
		return Result{}, err
	}
	if err := os.RemoveAll(o.Dir); err != nil {
		return Result{}, fmt.Errorf("folder %q: %w", o.Dir, err)
	}
	began := time.Now()
	result := Result{Begun: began.UTC(), Rounds: o.Rounds, Budget: o.Budget}
	result.Jobs = make([]Figures, len(jobs))
	machines := make([]string, len(jobs))
	failed := make([]error, len(jobs))
	room := make(chan struct{}, o.Parallel)
	var guests sync.WaitGroup
	for i, job := range jobs {
		guests.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			p := plan{Job: job, Rounds: o.Rounds, Setups: setups(o.Budget)}
			samples, machine, err := o.boot(ctx, p, progress)
			if err != nil {
				failed[i] = fmt.Errorf("job %q: %w", job.Name, err)
				return
			}
			machines[i], result.Jobs[i] = machine, summarise(p, samples)
		})
	}
	guests.Wait()
	if err := errors.Join(failed...); err != nil {
		return Result{}, err
	}
	result.Machine = machines[0]
	result.Seconds = time.Since(began).Seconds()
	result.judge()
	return result, nil
}

// boot runs a plan in a guest.
func (o Options) boot(ctx context.Context, p plan, progress io.Writer) ([]sample, string, error) {
	dir := filepath.Join(o.Dir, p.Job.Name)
	programs := filepath.Join(dir, "programs")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return nil, "", err
	}
	w, err := o.workload(ctx, p, programs)
	if err != nil {
		return nil, "", err
	}
	bench := measure.Bench{Plugin: o.Plugin, Places: workload.Places{Programs: programs}, Console: progress}
	kernel := measure.Kernel{Name: filepath.Base(o.Kernel), Dir: o.Kernel}
	m, err := bench.Measure(ctx, kernel, w, workload.Parameters{}, dir)
	if err != nil {
		return nil, "", err
	}
	var all []ran
	text, err := os.ReadFile(filepath.Join(dir, "run1", "files", ranFile))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, "", fmt.Errorf("jobs of the guest: %w", err)
	}
	machine := w.Guest()
	machine.Exact = true
	said, err := vm.Describe(ctx, machine)
	if err != nil {
		return nil, "", err
	}
	samples, err := join(all, m.Runs[0], p.Job.marker())
	return samples, said, err
}

// self is this program's name in a guest.
const self = "kb-bench"

// workload for the machine that counts, with this program as what it runs.
func (o Options) workload(ctx context.Context, p plan, dir string) (workload.Workload, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return workload.Workload{}, fmt.Errorf("plan: %w", err)
	}
	w := workload.Workload{
		Name: p.Job.Name, CPUs: 1, MemoryMiB: 2048, LimitMinutes: limit, Programs: append([]string{self}, p.Job.programs...),
		Config: map[string]string{planFile: string(text)},
		Setup: `mkdir -p ` + hierarchy + `
mount -t cgroup2 cgroup ` + hierarchy + `
echo +cpu >` + hierarchy + `/cgroup.subtree_control
`,
		Run: self + " collect guest >/dev/console\n",
	}
	if p.Job.tools != nil {
		if w.Tools, err = p.Job.tools(); err != nil {
			return workload.Workload{}, err
		}
	}
	return w, o.gather(ctx, p.Job, dir)
}

// gather puts the guest's programs into one folder.
func (o Options) gather(ctx context.Context, job Job, dir string) error {
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("this program: %w", err)
	}
	// The machine that counts wants the first of these for itself.
	for _, name := range append([]string{"kbmark", self}, job.programs...) {
		at := filepath.Join(dir, name)
		switch {
		case name == loop:
			said, err := exec.CommandContext(ctx, "gcc", "-O2", "-static", "-o", at, o.Known).CombinedOutput()
			if err != nil {
				return fmt.Errorf("program %q: %w: %s", o.Known, err, said)
			}
			continue
		case name == self:
			err = os.Symlink(own, at)
		case job.built != "" && name == job.Name:
			err = os.Symlink(job.built, at)
		default:
			var source string
			if source, err = filepath.Abs(filepath.Join(o.Programs, name)); err == nil {
				err = os.Symlink(source, at)
			}
		}
		if err != nil {
			return fmt.Errorf("program %q: %w", name, err)
		}
	}
	return nil
}

// sample is a job with what the plugin counted of it.
type sample struct {
	ran
	// Of the whole machine: while the collectors are attached, while the job
	// runs, and after.
	Start, Job, Stop measure.Region
}

var errRegions = errors.New("regions and jobs do not go together")

func join(all []ran, counted []measure.Region, job int) ([]sample, error) {
	if len(counted) != regions*len(all) {
		return nil, fmt.Errorf("%d regions, %d jobs: %w", len(counted), len(all), errRegions)
	}
	samples := make([]sample, 0, len(all))
	for i, one := range all {
		part := counted[regions*i : regions*(i+1)]
		if part[0].Marker != regionStart || part[1].Marker != job || part[2].Marker != regionStop {
			return nil, fmt.Errorf("job %d: markers %d, %d, %d: %w", i+1, part[0].Marker, part[1].Marker, part[2].Marker, errRegions)
		}
		samples = append(samples, sample{ran: one, Start: part[0], Job: part[1], Stop: part[2]})
	}
	return samples, nil
}
