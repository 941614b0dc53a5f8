// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// MeasurePlain builds the kernel of a recipe without a profile and measures it with
// the data; run is the name of its status. What a configuration is to blame for is a
// *Fault: it does not survive kconfig or the compiler, does not boot, or the
// workload fails on it.
func (p *Pipeline) MeasurePlain(ctx context.Context, runner *graph.Runner, run string, data Data) (Measured, error) {
	if p.Recipe.Optimisation.Profiled() || p.Bench == nil {
		return Measured{}, fmt.Errorf("kernel %q: only a kernel without a profile and with a workload is measured so", p.Recipe.Name)
	}
	g, err := p.Graph()
	if err != nil {
		return Measured{}, err
	}
	step := measureID("plain", data)
	results, err := runner.Run(ctx, run, g, step)
	if err != nil {
		return Measured{}, plainFault(ctx, err)
	}
	measured, err := ReadMeasured(results[step].Files())
	if err != nil {
		return Measured{}, err
	}
	for _, check := range measured.Checks {
		if !check.Passed {
			return Measured{}, &Fault{Stage: stageWorkload, Reason: check.Detail, Console: measured.Console}
		}
	}
	return measured, nil
}

// plainFault is the *Fault of a run that failed, where the kernel is to blame; else
// the error itself.
func plainFault(ctx context.Context, err error) error {
	found, rest := faults(err)
	if len(found) > 0 && rest == nil {
		return &found[0]
	}
	var step *graph.StepError
	if ctx.Err() != nil || !errors.As(err, &step) || step.Full != "" || step.Step != "config" && step.Step != "plain" {
		return err
	}
	return &Fault{Stage: stageBuild, Reason: unbuilt(step), err: err}
}

// unbuilt says in a line why a configuration makes no kernel.
func unbuilt(step *graph.StepError) string {
	var lost *kconfig.LostError
	if errors.As(step, &lost) {
		var options []string
		for _, one := range lost.Lost {
			options = append(options, one.Option.String())
		}
		return "kconfig does not take " + strings.Join(options, ", ")
	}
	return complaint(step.Text + "\n" + step.Tail)
}
