// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"encoding/json"
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
	step := measureID(stepPlain, data)
	results, err := runner.Run(ctx, run, g, step)
	if err != nil {
		return Measured{}, plainFault(ctx, err)
	}
	measured, err := ReadMeasured(results[step].Files(), p.Bench.Workload())
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
	var fault Fault
	if ctx.Err() == nil && errors.As(err, &step) && step.Full == "" && json.Unmarshal(step.Detail, &fault) == nil && fault.Stage == stageBuild {
		return &fault
	}
	return err
}

// unbuildable is an error of a step that the configuration is to blame for, wherever
// the step ran; all else that ends one (a job that was cancelled, a missing tool, the
// system's lack of memory) is nobody's.
type unbuildable struct {
	error
	reason string
}

// Unwrap gives the error.
func (u unbuildable) Unwrap() error { return u.error }

// Detail implements graph.Detailed.
func (u unbuildable) Detail() any { return Fault{Stage: stageBuild, Reason: u.reason} }

// blamed marks an error of the configuration's.
func blamed(err error) error {
	var lost *kconfig.LostError
	if !errors.As(err, &lost) {
		return err
	}
	var options []string
	for _, one := range lost.Lost {
		options = append(options, one.Option.String())
	}
	return unbuildable{err, "kconfig does not take " + strings.Join(options, ", ")}
}

// killed is what a compiler's driver says when the system has killed the compiler.
const killed = "Killed signal terminated program"
