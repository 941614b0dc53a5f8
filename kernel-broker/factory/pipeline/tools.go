// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"io"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Inputs of a step, by name: values and digests.
type Inputs = map[string]string

// Kernels configures and compiles the kernels of one recipe. Each kernel is a
// folder with bzImage, config and kernel.json, and for those compiled here
// System.map.
type Kernels interface {
	// Source gets the source in reach and says in source.json what it is.
	Source(ctx context.Context, work *graph.Work) error
	SourceInputs() (Inputs, error)
	// Configure writes config. slim is a fragment to lay over, or empty.
	Configure(ctx context.Context, variant build.Variant, slim string, work *graph.Work) error
	ConfigureInputs(variant build.Variant) (Inputs, error)
	// Compile makes a kernel of a configuration and perhaps a profile.
	Compile(ctx context.Context, variant build.Variant, config, profile string, work *graph.Work) error
	CompileInputs(variant build.Variant) (Inputs, error)
	// Stock is the distribution's own kernel.
	Stock(ctx context.Context, work *graph.Work) error
	StockInputs(ctx context.Context) (Inputs, error)
}

// Data is the training run or the test run of a workload.
type Data string

// The two runs.
const (
	Train Data = "train"
	Test  Data = "test"
)

// Bench runs kernels with the recipe's workload. What a kernel does wrong is a
// *vm.BootError or a *workload.FailedError; any other error is the bench's.
type Bench interface {
	// Workload is what all but Boot run.
	Workload() Workload
	// Inputs are those of the workload, of the programs in its root file
	// system and of the machine that is emulated.
	Inputs() (Inputs, error)
	// Boot starts a kernel, with one CPU and with two, and nothing else.
	Boot(ctx context.Context, kernel string, work *graph.Work) error
	// Trace notes which code ran: run.trace for all from the start of the
	// machine, work.trace for the workload alone.
	Trace(ctx context.Context, kernel string, work *graph.Work) error
	// Profile runs an instrumented kernel with the training data, and leaves
	// the folder profile as the compiler reads it.
	Profile(ctx context.Context, kernel string, work *graph.Work) error
	// Record runs the plain kernel with the training data, and leaves the folder
	// profile with a profile of its branches.
	Record(ctx context.Context, sampling autofdo.Sampling, kernel string, work *graph.Work) error
	// Measure runs a kernel with the data and leaves measured.json, of
	// Measured. A kernel on which the workload fails is a result too.
	Measure(ctx context.Context, kernel string, data Data, work *graph.Work) error
}

// Workload is what the pipeline must know of one.
type Workload struct {
	Name        string
	Application string
	Description string
	Operation   string
	// Like is the workload that this one has most from, no part of what keys are made of.
	Like        string `json:"-"`
	Train, Test verdict.Run
	// Required are the checks that a kernel has to pass.
	Required []string
	// HostClock is for verdict.Sample. What came later is left out of the JSON form, which is part of
	// a verdict's key, where it is false.
	HostClock bool `json:",omitempty"`
	// Unchecked: nothing checks what the workload did.
	Unchecked bool `json:",omitempty"`
}

func (w Workload) Run(data Data) verdict.Run {
	if data == Train {
		return w.Train
	}
	return w.Test
}

// Measured is what a bench finds out about a kernel. Kernels have no names
// here: what was measured is shared by all that compare themselves with it.
type Measured struct {
	Samples     []verdict.Sample   `json:"samples"`
	Checks      []verdict.CheckRun `json:"checks"`
	Mitigations []string           `json:"mitigations"`
	// Console is the end of what the guest said, of a kernel that failed.
	Console string `json:"console,omitempty"`
}

// Slimming is what a slimmer starts from: the kernel that ran, and its trace.
type Slimming struct {
	Kernel string
	Trace  string
}

// Slimmer finds the options that a kernel can do without. It leaves slim.config,
// the fragment, slim.json, which is a slim.Outcome, and perhaps objects.json,
// the object of each function.
type Slimmer interface {
	Slim(ctx context.Context, from Slimming, work *graph.Work) error
	Inputs() (Inputs, error)
}

// Publisher makes a candidate a version that jobs can have, or finds that it is
// one already, and returns its name.
type Publisher interface {
	Publish(ctx context.Context, candidate Candidate, log io.Writer) (string, error)
}
