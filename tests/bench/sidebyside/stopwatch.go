// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// LeastRounds of Wall; an odd number would leave a round without its reverse.
const LeastRounds = 4

// Stopwatch takes wall time of kernels under one workload, for who wants to
// know what a gain in instructions comes to. The host holds the watch: a
// guest's own clock is set at its boot, and on a busy host wrongly.
type Stopwatch struct {
	Bench measure.Bench
	// KVM has the guests on the host's own processor; they are emulated
	// otherwise, and then the time is the emulator's.
	KVM bool
	// Rounds in which each kernel runs once; even.
	Rounds int
	// Shuffle is rand.Shuffle if nil.
	Shuffle func(n int, swap func(i, j int))
	// Say is told of each run, as it ends; may be nil.
	Say func(format string, args ...any)
}

// The guest says on its console where the workload begins and ends.
const (
	beginWord = "kernel-factory: the workload begins"
	endWord   = "kernel-factory: the workload ends"
)

// Wall runs the workload on each kernel in each round. What it finds are one
// sample for each kernel, not exact: the whole run's time by its operations.
// Errors are those of Measure.
func (s Stopwatch) Wall(ctx context.Context, kernels []measure.Kernel, w workload.Workload, p workload.Parameters, dir string) ([]measure.Measurement, error) {
	if s.Rounds < LeastRounds || s.Rounds%2 != 0 {
		return nil, fmt.Errorf("%d rounds: an even number of at least %d", s.Rounds, LeastRounds)
	}
	if len(kernels) == 0 {
		return nil, errors.New("no kernel to take the time of")
	}
	shuffle := s.Shuffle
	if shuffle == nil {
		shuffle = rand.Shuffle
	}
	found := make([]measure.Measurement, len(kernels))
	for i, k := range kernels {
		found[i] = measure.Measurement{Kernel: k.Name, Workload: w.Name, Samples: []verdict.Sample{s.sample(k, w, p)}}
	}
	for round, order := range orders(len(kernels), s.Rounds, shuffle) {
		for _, i := range order {
			if err := s.once(ctx, kernels[i], w, p, dir, &found[i]); err != nil {
				return nil, err
			}
			if s.Say == nil {
				continue
			}
			values := found[i].Samples[0].Values
			s.Say("round %d of %d: %s: %.4g s for each operation", round+1, s.Rounds, kernels[i].Name, values[len(values)-1])
		}
	}
	return found, nil
}

// orders in which kernels run, one for each round. They come in pairs, the
// second one backwards: a machine that grows slower all the time does so for all
// kernels alike. The first of a pair is left to chance, against everything else.
func orders(kernels, rounds int, shuffle func(int, func(i, j int))) [][]int {
	var all [][]int
	for len(all) < rounds {
		order := make([]int, kernels)
		for i := range order {
			order[i] = i
		}
		shuffle(kernels, func(i, j int) { order[i], order[j] = order[j], order[i] })
		back := slices.Clone(order)
		slices.Reverse(back)
		all = append(all, order, back)
	}
	return all
}

func (s Stopwatch) sample(k measure.Kernel, w workload.Workload, p workload.Parameters) verdict.Sample {
	metric := verdict.EmulatedTime
	if s.KVM {
		metric = verdict.WallTime
	}
	return verdict.Sample{Workload: w.Name, Metric: metric, Unit: "seconds/operation", Kernel: k.Name, Size: p.Size, Seed: p.Seed}
}

// once adds one run.
func (s Stopwatch) once(ctx context.Context, k measure.Kernel, w workload.Workload, p workload.Parameters, dir string, to *measure.Measurement) error {
	o := measure.Options{KVM: s.KVM, Every: time.Millisecond,
		Hooks: workload.Hooks{Before: "echo '" + beginWord + "' >/dev/console", After: "echo '" + endWord + "' >/dev/console"}}
	watched := &arrivals{to: s.Bench.Console, words: []string{beginWord, endWord}, at: make([]time.Time, 2)}
	s.Bench.Console = watched
	_, outcome, err := s.Bench.Run(ctx, k, w, p, o, filepath.Join(dir, "run"))
	if err != nil {
		return err
	}
	took, err := between(watched.at)
	if err != nil {
		return fmt.Errorf("workload %q on kernel %q: %w", w.Name, k.Name, err)
	}
	var operations int64
	for _, region := range outcome.Regions {
		operations += region.Operations
	}
	sample := &to.Samples[0]
	if len(sample.Values) > 0 && (sample.Operations != operations || !slices.Equal(to.Mitigations, outcome.Mitigations)) {
		return fmt.Errorf("workload %q on kernel %q: a run of %d operations (%s), and before one of %d (%s)", w.Name, k.Name,
			operations, strings.Join(outcome.Mitigations, ", "), sample.Operations, strings.Join(to.Mitigations, ", "))
	}
	sample.Operations, to.Mitigations = operations, outcome.Mitigations
	sample.Values = append(sample.Values, took.Seconds()/float64(operations))
	return nil
}

func between(at []time.Time) (time.Duration, error) {
	if at[0].IsZero() || at[1].IsZero() {
		return 0, errors.New("its console does not say when it began and ended")
	}
	took := at[1].Sub(at[0])
	if took <= 0 {
		return 0, errors.New("it ended as soon as it began: its size is too small for a clock")
	}
	return took, nil
}

// arrivals notes when words first come on a console.
type arrivals struct {
	to    io.Writer // may be nil
	words []string
	at    []time.Time // of each word; zero for one that did not come
	text  []byte
}

func (a *arrivals) Write(text []byte) (int, error) {
	now := time.Now()
	a.text = append(a.text, text...)
	for i, word := range a.words {
		if a.at[i].IsZero() && bytes.Contains(a.text, []byte(word)) {
			a.at[i] = now
		}
	}
	if a.to == nil {
		return len(text), nil
	}
	return a.to.Write(text)
}

// Inputs are what times depend on besides the kernels and the host.
func (s Stopwatch) Inputs(ctx context.Context, w workload.Workload) (map[string]string, error) {
	inputs, err := s.Bench.Inputs(ctx, w)
	if err != nil {
		return nil, err
	}
	delete(inputs, "plugin") // nothing is counted
	guest := w.Guest()
	guest.KVM = s.KVM
	if inputs["machine"], err = vm.Describe(ctx, guest); err != nil {
		return nil, err
	}
	inputs["rounds"] = fmt.Sprint(s.Rounds)
	return inputs, nil
}
