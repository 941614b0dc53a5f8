// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

func (a *app) buildStatusCommand() *cobra.Command {
	return a.command("status NAME", "Show the progress of a kernel's newest build", cobra.ExactArgs(1),
		func(_ context.Context, args []string) error { return a.buildStatus(args[0]) })
}

func (a *app) buildLogCommand() *cobra.Command {
	var follow bool
	c := a.command("log NAME [STEP]", "Print the log of a step of the newest build", cobra.RangeArgs(1, 2), func(ctx context.Context, args []string) error {
		return a.buildLog(ctx, args[0], append(args, "")[1], follow)
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "follow the log until the step ends")
	return c
}

func (a *app) status(name string) (graph.Status, error) {
	if err := kb.ValidateProfileName(name); err != nil {
		return graph.Status{}, usageError{err}
	}
	cache, err := a.cacheDir()
	if err != nil {
		return graph.Status{}, err
	}
	return pipeline.StoreIn(cache).Status(name, "")
}

func (a *app) buildStatus(name string) error {
	status, err := a.status(name)
	if err != nil {
		return err
	}
	return a.showValue(status, func(p *page) {
		p.row("Kernel:", status.Name)
		p.row("State:", status.State)
		p.row("Where:", fmt.Sprintf("%s, by process %d on %s", status.Where, status.PID, status.Host))
		p.row("Began:", clock(status.Began))
		p.row("Ended:", clock(status.Ended))
		p.row("Work:", formatCost(status.Cost))
		p.line("")
		p.head("STEP", "STATE", "TIME", "RESULT", "PROGRESS", "JOB")
		for _, step := range status.Steps {
			p.row(step.Name, stepState(step), stepTime(step, time.Now()), unlessZero(step.Bytes, rounded.Size(uint64(step.Bytes))), unlessZero(step.Total, fmt.Sprintf("%d of %d", step.Done, step.Total)), step.Job)
		}
		if status.Error != "" {
			p.line("\n%s", status.Error)
		}
	})
}

func stepState(s graph.StepStatus) string {
	switch {
	case s.Cached:
		return "done before"
	case s.State == graph.Done && s.Shared:
		return "done by another"
	}
	return string(s.State)
}

// stepTime is the duration of a step so far or in total.
func stepTime(s graph.StepStatus, now time.Time) string {
	switch {
	case s.Seconds > 0:
		return worked(s.Seconds)
	case s.Began.IsZero() || s.Cached || s.State == graph.Killed:
		return ""
	case !s.Ended.IsZero():
		now = s.Ended
	}
	return worked(now.Sub(s.Began).Seconds())
}

func worked(s float64) string {
	return rounded.Time(time.Duration(s * float64(time.Second)))
}

// formatCost sums up the steps that have ended.
func formatCost(c graph.Cost) string {
	words := fmt.Sprintf("%s for this build", worked(c.Seconds))
	if c.SecondsBefore > 0 {
		words += fmt.Sprintf(", %s reused from earlier builds", worked(c.SecondsBefore))
	}
	return words + fmt.Sprintf("; results of %s", rounded.Size(uint64(c.Bytes)))
}

func (a *app) buildLog(ctx context.Context, name, step string, follow bool) error {
	status, err := a.status(name)
	if err != nil {
		return err
	}
	found, err := chooseStep(status, step)
	if err != nil {
		return err
	}
	file, err := os.Open(found.Log)
	if errors.Is(err, fs.ErrNotExist) || found.Log == "" {
		return fmt.Errorf("step %q of %q has no output yet: %w", found.Name, name, kb.ErrNotFound)
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read from
	a.say("%s of %s: %s (%s)", found.Name, name, found.State, found.Log)
	for {
		if _, err := io.Copy(a.Stdout, file); err != nil {
			return err
		}
		if !follow || found.State.Ended() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
		// Read once more after the step has ended.
		if status, err = a.status(name); err != nil {
			return err
		}
		if found, err = chooseStep(status, found.Name); err != nil {
			return err
		}
	}
}

// chooseStep finds the named step, or the one that is most worth reading.
func chooseStep(status graph.Status, name string) (graph.StepStatus, error) {
	if name != "" {
		if step, has := status.Step(name); has {
			return step, nil
		}
		var names []string
		for _, step := range status.Steps {
			names = append(names, step.Name)
		}
		return graph.StepStatus{}, fmt.Errorf("%q has no step %q, it has %v: %w", status.Name, name, names, kb.ErrNotFound)
	}
	var last graph.StepStatus
	for _, step := range status.Steps {
		switch step.State {
		case graph.Running, graph.Following, graph.Queued, graph.Failed, graph.Killed, graph.Stopped:
			return step, nil
		case graph.Done:
			last = step
		}
	}
	if last.Name == "" {
		return last, fmt.Errorf("the build of %q began no step: %w", status.Name, kb.ErrNotFound)
	}
	return last, nil
}
