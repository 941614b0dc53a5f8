// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/jsonfile"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// ErrUntrue: the demo ran, and something it shows was not so.
var ErrUntrue = errors.New("some checks failed")

// Options of a run.
type Options struct {
	Dir     string
	Kernel  string
	IOScale int
	JSON    string
	// Keep the cluster after the checks, with the page, until it is interrupted.
	Keep bool
}

const (
	user    = "alice"
	profile = "mitgcm"
	limit   = 10 * time.Minute
)

// demo is one run.
type demo struct {
	lab    *lab.Lab
	out    io.Writer
	o      Options
	begin  time.Time
	checks []Check
	result Result
}

// Check is one claim, and whether it was true.
type Check struct {
	Claim string `json:"claim"`
	True  bool   `json:"true"`
	Saw   string `json:"saw"`
}

// Result is the output of --json.
type Result struct {
	StockRelease string    `json:"stock_release"`
	Seconds      float64   `json:"seconds"`
	Special      *Workload `json:"special"`
	Stock        *Workload `json:"stock"`
	Job          *Job      `json:"job"`
	Checks       []Check   `json:"checks"`
}

// Run runs the demo. It returns ErrUntrue when a check failed.
func Run(ctx context.Context, o Options, out io.Writer) error {
	if o.Dir == "" {
		o.Dir = filepath.Join("build", "lab", "demo")
	}
	d := &demo{out: out, o: o, begin: time.Now()}
	d.title("A virtual cluster: slurmctld, munge, the broker, and two nodes under QEMU")
	l, err := lab.Up(ctx, lab.Options{Dir: o.Dir, Kernel: o.Kernel, Nodes: 2, Progress: indent{out}, ReadyTimeout: limit,
		Slurm: lab.SlurmOptions{ReturnToService: 1, Cgroup: true}})
	if err != nil {
		return err
	}
	d.lab = l
	if err = d.story(ctx); err == nil {
		err = d.end()
	}
	if o.Keep && (err == nil || errors.Is(err, ErrUntrue)) {
		err = errors.Join(err, d.page(ctx))
	}
	keep := err != nil
	// Nothing may be left behind, even after an interrupt.
	if derr := l.Down(context.WithoutCancel(ctx), keep); derr != nil {
		err = errors.Join(err, derr)
	}
	if keep {
		fmt.Fprintf(out, "\nLogs and consoles are kept in %s\n", o.Dir)
	}
	return err
}

// story runs all steps.
func (d *demo) story(ctx context.Context) error {
	steps := []func(context.Context) error{d.before, d.special, d.timeline, d.stock, d.compare, d.plain}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// end prints the checks and reports whether all passed.
func (d *demo) end() error {
	d.result.Checks = d.checks
	d.result.Seconds = time.Since(d.begin).Seconds()
	d.title("Checks")
	for _, c := range d.checks {
		mark := "yes"
		if !c.True {
			mark = "NO "
		}
		fmt.Fprintf(d.out, "  %s  %s", mark, c.Claim)
		if !c.True {
			fmt.Fprintf(d.out, ": %s", c.Saw)
		}
		fmt.Fprintln(d.out)
	}
	fmt.Fprintf(d.out, "\n%d of %d true, after %.0f s\n", len(d.checks)-d.untrue(), len(d.checks), d.result.Seconds)
	if d.o.JSON != "" {
		if err := jsonfile.Write(d.o.JSON, d.result); err != nil {
			return err
		}
	}
	if d.untrue() > 0 {
		return fmt.Errorf("%d of %d checks: %w", d.untrue(), len(d.checks), ErrUntrue)
	}
	return nil
}

func (d *demo) untrue() int {
	n := 0
	for _, c := range d.checks {
		if !c.True {
			n++
		}
	}
	return n
}

// check records a claim.
func (d *demo) check(ok bool, claim string, saw any) {
	d.checks = append(d.checks, Check{Claim: claim, True: ok, Saw: fmt.Sprint(saw)})
}

func (d *demo) title(text string) { fmt.Fprintf(d.out, "\n== %s\n", text) }

// say prints one line with the time since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "  %6.1fs  %s\n", time.Since(d.begin).Seconds(), fmt.Sprintf(format, args...))
}

// command prints a user's command.
func (d *demo) command(text string) { fmt.Fprintf(d.out, "  $ %s\n", text) }

// indent sets the lab's lines off.
type indent struct{ out io.Writer }

func (i indent) Write(p []byte) (int, error) {
	if _, err := fmt.Fprintf(i.out, "  %s", p); err != nil {
		return 0, err
	}
	return len(p), nil
}
