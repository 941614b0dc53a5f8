// SPDX-License-Identifier: Apache-2.0

package ocean

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

const (
	user    = "alice"
	profile = "mitgcm"
	// limit is no figure, only an end to waiting for one job.
	limit = time.Hour
)

// Options of a run.
type Options struct {
	Model
	Runs int
	Jobs int
	// Kernel is the nodes' own, a folder of build/kernels.
	Kernel string
	Dir    string
}

// Result of a run. Times are the emulator's.
type Result struct {
	Command    string             `json:"command"`
	Experiment string             `json:"experiment"`
	Outcomes   []Outcome          `json:"outcomes"`
	Measures   []*figures.Measure `json:"measures"`
	// Identical says that all jobs printed and wrote the same.
	Identical bool `json:"identical"`

	series []figures.Series
}

// ErrDiffers is a model that does something else on the profile's kernel.
var ErrDiffers = errors.New("the model's results differ")

// Run builds the model, and runs it by turns on both kernels.
func Run(ctx context.Context, o Options, progress io.Writer) (result *Result, err error) {
	if o.Runs < 1 {
		return nil, errors.New("--runs: at least 1")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "building MITgcm's %s\n", o.Experiment)
	model, err := o.build(ctx, filepath.Join(o.Dir, "model"), o.Jobs, progress)
	if err != nil {
		return nil, err
	}
	l, err := lab.Up(ctx, lab.Options{Dir: filepath.Join(o.Dir, "lab"), Kernel: o.Kernel, Nodes: 1, Progress: progress, ReadyTimeout: 10 * time.Minute,
		Slurm: lab.SlurmOptions{ReturnToService: 1}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx), err != nil)) }()
	if err := prepare(l.Home(user), model, o.folder("input")); err != nil {
		return nil, err
	}
	return o.rounds(ctx, l, progress)
}

// prepare gives the user the model, its input and a batch script.
func prepare(home, model, input string) error {
	dir := filepath.Join(home, "ocean")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(input)); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	text, err := os.ReadFile(model)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, program), text, 0o755), os.WriteFile(filepath.Join(home, "ocean.sh"), []byte(script), 0o755))
}

// rounds run one job on each kernel, every second time in the other order.
func (o Options) rounds(ctx context.Context, l *lab.Lab, progress io.Writer) (*Result, error) {
	result := &Result{Experiment: o.Experiment, Identical: true}
	var book figures.Book
	for round := range o.Runs {
		kernels := []string{"stock", profile}
		if round%2 == 1 {
			kernels[0], kernels[1] = kernels[1], kernels[0]
		}
		for _, kernel := range kernels {
			name := fmt.Sprintf("ocean-%s-%d", kernel, round+1)
			one, err := job(ctx, l, name, kernel)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "%s: %s, %.1f s elapsed, %.1f s in the kernel\n", name, one.Release, one.Elapsed, one.System)
			for what, value := range map[string]float64{"elapsed": one.Elapsed, "in the kernel": one.System} {
				book.Add(kernel+": "+what, "s of the emulator", value)
			}
			result.Outcomes = append(result.Outcomes, one)
			if where := result.Outcomes[0].differs(one); where != "" {
				result.Identical = false
				fmt.Fprintf(progress, "%s: not what the first job said: %s\n", name, where)
			}
		}
	}
	result.Measures, result.series = book.Measures, book.Series("Ocean", "s")
	return result, o.judge(result)
}

// judge looks at whether the jobs ran where they were to, and did the same.
func (o Options) judge(result *Result) error {
	releases := map[string]bool{}
	for _, one := range result.Outcomes {
		releases[one.Release] = true
	}
	if len(releases) != 2 {
		return fmt.Errorf("jobs ran on %d kernels and not on two: %v", len(releases), releases)
	}
	if !result.Identical {
		return ErrDiffers
	}
	return nil
}

// job runs the model once, and waits for its end.
func job(ctx context.Context, l *lab.Lab, name, kernel string) (Outcome, error) {
	argv := []string{"sbatch", "--parsable", "--wait", "--job-name=" + name}
	if kernel == profile {
		argv = append(argv, "--kernel-profile="+profile)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := l.Exec(ctx, user, append(argv, "ocean.sh")...)
	if err != nil {
		return Outcome{}, err
	}
	if r.Exit != 0 {
		log, _ := os.ReadFile(filepath.Join(l.Home(user), name+".log")) // may not be there
		return Outcome{}, fmt.Errorf("job %s: exit %d: %s", name, r.Exit, strings.TrimSpace(r.Stderr+string(log)))
	}
	return outcome(l.Home(user), name)
}

// Print writes the table.
func (r *Result) Print(out io.Writer) error {
	if err := figures.Table(out, "MITGCM "+r.Experiment, r.Measures); err != nil {
		return err
	}
	first := r.Outcomes[0]
	_, err := fmt.Fprintf(out, "\n%d jobs on two kernels: %d lines of the monitor and %d files of fields, the same in all\n", len(r.Outcomes), first.Monitor, first.Fields)
	return err
}

// Series are the samples for benchstat.
func (r *Result) Series() []figures.Series { return r.series }
