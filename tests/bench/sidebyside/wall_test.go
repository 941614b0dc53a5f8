// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// timer is the fake's bench with times that rise with the cost of a kernel.
type timer struct {
	*fake
	flaw string // another one than when it was counted
}

func (f timer) WallInputs(rounds int) (pipeline.Inputs, error) {
	return pipeline.Inputs{"workload": "1", "rounds": fmt.Sprint(rounds)}, nil
}

func (f timer) Wall(_ context.Context, kernels map[string]string, rounds int, w *graph.Work) error {
	names := slices.Sorted(maps.Keys(kernels))
	timed := Timed{Method: "by the fake", Kernels: map[string]pipeline.Measured{}}
	run := f.Workload().Test
	for i, name := range names {
		sample := verdict.Sample{Workload: run.Workload, Metric: verdict.WallTime, Unit: "seconds/operation", Kernel: name,
			Seed: run.Seed, Size: run.Size, Operations: run.Size}
		for round := range rounds {
			sample.Values = append(sample.Values, 1e-6*float64(i+1)+1e-9*float64(round))
		}
		timed.Kernels[name] = pipeline.Measured{Samples: []verdict.Sample{sample}, Mitigations: []string{f.flaw}}
	}
	return errors.Join(f.did("wall "+strings.Join(names, " ")), writeJSON(filepath.Join(w.Dir, timedFile), timed))
}

func (w *world) timedSideBySide() *SideBySide {
	s := w.sideBySide()
	s.Benches = []pipeline.Bench{timer{w.fake, "meltdown: PTI"}}
	s.Wall = 4
	return s
}

func TestWallTimeSideBySide(t *testing.T) {
	w := newWorld(t, nil)
	folder, err := w.timedSideBySide().Run(t.Context(), w.runner())
	if err != nil {
		t.Fatal(err)
	}
	made, err := readReport(folder)
	if err != nil {
		t.Fatal(err)
	}
	// Names in order: fake, slim, stock.
	found := map[string]string{}
	for _, m := range made.Figures.Measured {
		if m.Metric == verdict.WallTime && m.ToSlim != nil {
			if m.ToSlim.P == nil || m.Summary.Repetitions != 4 || m.Exact {
				t.Errorf("%s: %+v", m.Kernel, m)
			}
			found[m.Kernel] = string(m.ToSlim.Standing)
		}
	}
	if found["fake"] != "better" || found["stock"] != "worse" {
		t.Errorf("standings %v", found)
	}
	for _, k := range made.Facts.Kernels {
		if !slices.Contains(k.Mitigations, "meltdown: PTI") {
			t.Errorf("kernel %s: %q", k.Name, k.Mitigations)
		}
	}
	if made.Facts.Machine != "here; wall time: by the fake" {
		t.Errorf("machine %q", made.Facts.Machine)
	}
	// Times are kept like anything else.
	w.worked = nil
	if _, err := w.timedSideBySide().Run(t.Context(), w.runner()); err != nil || w.worked != nil {
		t.Errorf("again: worked on %v, %v", w.worked, err)
	}
}

// A kernel on which the workload fails when it is counted is not timed.
func TestWallTimeOfAKernelThatFails(t *testing.T) {
	w := newWorld(t, nil)
	w.wrong = "byte 17 is 0x00"
	if _, err := w.timedSideBySide().Run(t.Context(), w.runner()); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(w.worked, "wall slim stock") {
		t.Errorf("worked on %v", w.worked)
	}
}

// Without wall time no step is another one than with it, so that asking for it
// later does nothing again, and not asking changes nothing.
func TestWallTimeLeavesOtherStepsAlone(t *testing.T) {
	w := newWorld(t, nil)
	graphs := map[int]*graph.Graph{}
	for _, rounds := range []int{0, 4} {
		s := w.timedSideBySide()
		s.Wall = rounds
		g, err := s.Graph()
		if err != nil {
			t.Fatal(err)
		}
		graphs[rounds] = g
	}
	if more := len(graphs[4].Names()) - len(graphs[0].Names()); more != 1 {
		t.Errorf("%d steps more", more)
	}
	for _, name := range graphs[0].Names() {
		without, _ := graphs[0].Step(name)
		with, _ := graphs[4].Step(name)
		if name == StepSideBySide {
			delete(with.Needs, timedOn("write8"))
		}
		if without.Kind != with.Kind || !reflect.DeepEqual(without.Inputs, with.Inputs) || !reflect.DeepEqual(without.Needs, with.Needs) {
			t.Errorf("step %q is %+v, and with wall time %+v", name, without, with)
		}
	}
	s := w.sideBySide()
	s.Wall = 4
	if _, err := s.Graph(); err == nil || !strings.Contains(err.Error(), `workload "write8": nothing takes wall time`) {
		t.Errorf("error is %v", err)
	}
}

func TestAlsoSeen(t *testing.T) {
	given := []string{"a: 1", "b: 2"}
	if got := alsoSeen(given, []string{"b: 2", "a: 1"}); !reflect.DeepEqual(got, given) {
		t.Errorf("the same: %v", got)
	}
	if got := alsoSeen(given, []string{"a: 3"}); !reflect.DeepEqual(got, []string{"a: 1", "b: 2", "a: 3"}) {
		t.Errorf("another: %v", got)
	}
	if got := alsoSeen(given, nil); !reflect.DeepEqual(got, given) {
		t.Errorf("nothing: %v", got)
	}
}

// The emulator's method says what the host refused; here the kernel is none.
func TestWallOfTheEmulatorNeedsAKernel(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := &graph.Work{Dir: filepath.Join(dir, "work"), Log: &strings.Builder{}}
	e := emulator{host: &host{}}
	err := e.Wall(t.Context(), map[string]string{"none": dir}, 4, w)
	if err == nil || !strings.Contains(fmt.Sprint(w.Log), "not of a processor (kvm: ") {
		t.Errorf("error is %v, log %v", err, w.Log)
	}
	if !e.host.asked || !errors.Is(e.host.kvm(t.Context(), "", ""), e.host.err) {
		t.Errorf("host %+v", e.host)
	}
}
