// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// ErrTrouble: the measurement ended, and something in it did not work.
var ErrTrouble = errors.New("not all of it worked")

// Options of a measurement.
type Options struct {
	// Dir is the folder for the two labs.
	Dir string
	// Kernel is the nodes' own.
	Kernel string
	Runs   int
	Nodes  int
	// JSON is the file for the results.
	JSON string
}

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	if o.Runs < 1 {
		return fmt.Errorf("--runs %d: want 1 or more", o.Runs)
	}
	if o.Nodes < 1 || o.Nodes > 2 {
		return fmt.Errorf("--nodes %d: want 1 or 2", o.Nodes)
	}
	if o.Kernel == profile {
		return fmt.Errorf("--kernel %s: is the kernel to switch to", o.Kernel)
	}
	return nil
}

// kernel is the profile's, as the broker knows it.
type kernel struct {
	BuildID   string   `json:"build_id"`
	Release   string   `json:"release"`
	Arguments []string `json:"arguments"`
}

// run is one measurement.
type run struct {
	o              Options
	progress       io.Writer
	product, plain *cluster
	kernel         kernel
	ownBuild       string
	round          int
	times          figures.Book
	phases, reuse  figures.Book
	looks          []float64
	result         Result
}

// Run measures, prints the tables to out, and writes the JSON file. Progress
// goes to progress.
func Run(ctx context.Context, o Options, out, progress io.Writer) error {
	r := &run{o: o, progress: progress}
	r.result = Result{Begun: time.Now(), Runs: o.Runs, Nodes: o.Nodes, Profile: profile, Processors: runtime.NumCPU()}
	err := r.up(ctx)
	if err == nil {
		err = r.rounds(ctx)
	}
	keep := err != nil || len(r.result.Trouble) > 0
	if derr := r.down(context.WithoutCancel(ctx), keep); derr != nil {
		err = errors.Join(err, derr)
	}
	if err != nil {
		return err
	}
	r.finish()
	if err := r.result.print(out); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	series := slices.Concat(r.times.Series("Times", "sec/op"), r.phases.Series("Switch", "sec/op"), r.reuse.Series("Reuse", "sec/op"))
	if err := figures.Write(o.JSON, r.result, series); err != nil {
		return err
	}
	if len(r.result.Trouble) > 0 {
		return ErrTrouble
	}
	return nil
}

// up brings both clusters up, one after the other.
func (r *run) up(ctx context.Context) error {
	dir := func(name string) string { return filepath.Join(r.o.Dir, name) }
	// Later on the labs would say before each measurement that they are idle.
	said := &untilUp{to: r.progress}
	defer said.up.Store(true)
	// A long record, so that a job can be asked for at the end of its round.
	o := lab.Options{
		Dir: dir("product"), Kernel: r.o.Kernel, Nodes: r.o.Nodes, Progress: said, ReadyTimeout: limit, Owned: true,
		Slurm: lab.SlurmOptions{ReturnToService: 1, Set: map[string]string{"MinJobAge": "3600"}},
	}
	l, err := lab.Up(ctx, o)
	if err != nil {
		return err
	}
	r.product = &cluster{Lab: l, name: "product's"}
	o.Dir, o.WithoutProduct = dir("plain"), true
	// Nobody tells this slurmctld of the boots: it has to take them as they are.
	o.Slurm.ReturnToService = 2
	o.Files = map[string]string{floorImage: filepath.Join(l.Options().Kernels, profile, "bzImage")}
	if l, err = lab.Up(ctx, o); err != nil {
		return err
	}
	r.plain = &cluster{Lab: l, name: "plain"}
	if err := errors.Join(r.product.prepare(), r.plain.prepare()); err != nil {
		return err
	}
	return r.identify(ctx)
}

// untilUp passes the labs' lines on while they come up.
type untilUp struct {
	to io.Writer
	up atomic.Bool
}

func (u *untilUp) Write(p []byte) (int, error) {
	if u.up.Load() {
		return len(p), nil
	}
	return u.to.Write(p)
}

// identify notes what is measured on what.
func (r *run) identify(ctx context.Context) error {
	var p struct {
		DefaultVersion int `json:"default_version"`
		Versions       []struct {
			Kernel struct {
				kernel
				Version int `json:"version"`
			} `json:"kernel"`
		} `json:"versions"`
	}
	if err := r.product.kernelctl(ctx, &p, "profile", "show", profile); err != nil {
		return err
	}
	for _, v := range p.Versions {
		if v.Kernel.Version == p.DefaultVersion {
			r.kernel = v.Kernel.kernel
		}
	}
	if r.kernel.BuildID == "" {
		return fmt.Errorf("profile %q: no kernel for its default version", profile)
	}
	status, err := r.plain.Status(ctx)
	if err != nil {
		return err
	}
	r.result.Kernel, r.result.Accelerator, r.result.ProfileBuild = status.Kernel, status.Accel, r.kernel.BuildID
	r.result.Profile = profile + " " + r.kernel.Release
	r.ownBuild, err = buildID(ctx, r.plain.Node(1))
	return err
}

// rounds does everything once to warm up and then as often as asked for. Each
// round begins with another measurement, so that none always follows the same.
func (r *run) rounds(ctx context.Context) error {
	steps := []func(context.Context) error{r.stock, r.change, r.boots, r.waiting}
	for r.round = 0; r.round <= r.o.Runs; r.round++ {
		for _, b := range []*figures.Book{&r.times, &r.phases, &r.reuse} {
			b.Warming = r.round == 0
		}
		for i := range steps {
			if err := steps[(r.round+i)%len(steps)](ctx); err != nil {
				return fmt.Errorf("round %d: %w", r.round, err)
			}
		}
		if r.round == 0 {
			r.say("warmed up")
			continue
		}
		r.say("round %d of %d", r.round, r.o.Runs)
	}
	return nil
}

// boots goes to the profile's kernel by hand and back by the reset button.
func (r *run) boots(ctx context.Context) error {
	if err := r.floor(ctx); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	if err := r.reset(ctx); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// finish computes what is printed.
func (r *run) finish() {
	r.result.Seconds = time.Since(r.result.Begun).Seconds()
	r.result.Measures, r.result.Phases, r.result.ReusePhases = r.times.Measures, r.phases.Measures, r.reuse.Measures
	r.result.LookSeconds = figures.Of(r.looks).Median
	r.result.Goals = goals(&r.times)
}

// down ends both clusters, whichever are up.
func (r *run) down(ctx context.Context, keepLogs bool) error {
	var errs []error
	for _, c := range []*cluster{r.product, r.plain} {
		if c != nil {
			errs = append(errs, c.Down(ctx, keepLogs))
		}
	}
	if keepLogs {
		r.say("logs and consoles are kept in %s", r.o.Dir)
	} else if err := os.Remove(r.o.Dir); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		errs = append(errs, fmt.Errorf("folder of the labs: %w", err))
	}
	return errors.Join(errs...)
}
