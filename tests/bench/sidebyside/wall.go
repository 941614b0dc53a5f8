// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// Timer is a Bench that takes wall time too. Other than counts, times of one
// kernel say nothing: all kernels that are compared run in one step, by turns.
type Timer interface {
	// Wall runs the kernels, folders by name, so many rounds with the test data
	// and leaves timed.json, of Timed.
	Wall(ctx context.Context, kernels map[string]string, rounds int, work *graph.Work) error
	// WallInputs are what that depends on, besides the machine.
	WallInputs(rounds int) (pipeline.Inputs, error)
}

// Timed is what a Timer finds out.
type Timed struct {
	// Method says on what the kernels ran, and why not on the processor itself.
	Method  string                       `json:"method"`
	Kernels map[string]pipeline.Measured `json:"kernels"`
}

const timedFile = "timed.json"

func timedOn(workload string) string { return "timed-on-" + workload }

// timing is for one workload on many kernels, one guest after the other.
var timing = graph.Resources{CPUs: 1, MemoryMiB: 2048, Limit: 24 * time.Hour}

// wall adds the step that takes the time of a workload on all kernels, whose
// steps are given by name. Kernels on which the workload failed when it was
// counted take no part.
func (b *builder) wall(bench pipeline.Bench, rounds int, machine string, kernels map[string]string) (id string) {
	name := bench.Workload().Name
	timer, can := bench.(Timer)
	if !can {
		b.err = errors.Join(b.err, fmt.Errorf("workload %q: nothing takes wall time of it", name))
		return ""
	}
	inputs := b.inputs(timer.WallInputs(rounds))
	mine := pipeline.Inputs{"host": machine}
	maps.Copy(mine, inputs)
	needs := map[string]string{}
	for kernel, step := range kernels {
		needs["kernel-"+kernel] = step
		needs[measuredOn(kernel, name)] = measureStep(kernel, name)
	}
	id = "wall-" + name
	b.add(id, "wall", mine, needs, timing, func(ctx context.Context, w *graph.Work) error {
		folders := map[string]string{}
		for kernel := range kernels {
			measured, err := pipeline.ReadMeasured(w.Need(measuredOn(kernel, name)), bench.Workload())
			if err != nil {
				return err
			}
			if passed(measured) {
				folders[kernel] = w.Need("kernel-" + kernel)
			}
		}
		if len(folders) == 0 {
			return writeJSON(filepath.Join(w.Dir, timedFile), Timed{Method: "the workload runs on no kernel"})
		}
		return timer.Wall(ctx, folders, rounds, w)
	})
	return id
}

func passed(m pipeline.Measured) bool {
	for _, check := range m.Checks {
		if !check.Passed {
			return false
		}
	}
	return true
}

// timed adds the times to a report's facts.
func (s *SideBySide) timed(w *graph.Work, facts *kernelreport.Facts) error {
	for _, bench := range s.Benches {
		need := timedOn(bench.Workload().Name)
		if !w.Has(need) {
			continue
		}
		var timed Timed
		if err := readJSON(filepath.Join(w.Need(need), timedFile), &timed); err != nil {
			return err
		}
		if !strings.Contains(facts.Machine, timed.Method) {
			facts.Machine += "; wall time: " + timed.Method
		}
		for i := range facts.Kernels {
			kernel := &facts.Kernels[i]
			if measured, has := timed.Kernels[kernel.Name]; has {
				pipeline.AddMeasured(facts, kernel.Name, measured)
				kernel.Mitigations = alsoSeen(kernel.Mitigations, measured.Mitigations)
			}
		}
	}
	return nil
}

// alsoSeen adds what a kernel does against flaws on another processor: it is
// equal to another kernel only if it is so on both.
func alsoSeen(mitigations, more []string) []string {
	for _, one := range more {
		if !slices.Contains(mitigations, one) {
			mitigations = append(slices.Clone(mitigations), one)
		}
	}
	return mitigations
}

// host remembers whether guests run on its own processor: it does not change its
// mind, and a refusal may take a minute.
type host struct {
	mu    sync.Mutex
	asked bool
	err   error
}

func (h *host) kvm(ctx context.Context, kernel, dir string) error {
	if h == nil {
		return probeKVM(ctx, kernel, dir)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked {
		h.err = probeKVM(ctx, kernel, dir)
		h.asked = ctx.Err() == nil
	}
	return h.err
}

// emulator is the pipeline's, with a host that is asked once for all workloads.
type emulator struct {
	pipeline.Emulator
	host *host
}

// WallInputs implements Timer.
func (e emulator) WallInputs(rounds int) (pipeline.Inputs, error) {
	inputs, err := Stopwatch{Bench: e.Machine, Rounds: rounds}.Inputs(context.Background(), e.Load)
	if err != nil {
		return nil, err
	}
	inputs["kvm"] = "may work"
	if err := kvmUsable(); err != nil {
		inputs["kvm"] = "no device"
	}
	return inputs, nil
}

// Wall implements Timer.
func (e emulator) Wall(ctx context.Context, kernels map[string]string, rounds int, w *graph.Work) error {
	names := slices.Sorted(maps.Keys(kernels))
	return aside(w, func(dir string) error {
		timed := Timed{Method: "on the host's processor, by KVM", Kernels: map[string]pipeline.Measured{}}
		refusal := e.host.kvm(ctx, filepath.Join(kernels[names[0]], build.ImageFile), filepath.Join(dir, "probe"))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refusal != nil {
			reason, _, _ := strings.Cut(refusal.Error(), "\n")
			timed.Method = "of the emulator, not of a processor (" + strings.TrimSuffix(reason, "; the console's end:") + ")"
		}
		w.Say("wall time: %s", timed.Method)
		var all []measure.Kernel
		for _, name := range names {
			all = append(all, measure.Kernel{Name: name, Dir: kernels[name]})
		}
		done := 0
		watch := Stopwatch{Bench: e.Machine, KVM: refusal == nil, Rounds: rounds, Say: func(format string, args ...any) {
			done++
			w.Units(done, rounds*len(all))
			w.Say(format, args...)
		}}
		found, err := watch.Wall(ctx, all, e.Load, e.Load.Test, dir)
		if err != nil {
			return err
		}
		for _, one := range found {
			timed.Kernels[one.Kernel] = pipeline.Measured{Samples: one.Samples, Mitigations: one.Mitigations}
		}
		return writeJSON(filepath.Join(w.Dir, timedFile), timed)
	})
}

// aside gives a run a folder that is no part of the result.
func aside(w *graph.Work, run func(dir string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(w.Dir), "run-")
	if err != nil {
		return err
	}
	return errors.Join(run(dir), os.RemoveAll(dir))
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
