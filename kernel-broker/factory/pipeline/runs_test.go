// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

func aTrace(run uint64, functions ...string) slim.JobTrace {
	return slim.JobTrace{Run: run, Results: []slim.JobResult{{Node: "n1", Digest: digest("result")}}, Releases: []string{"6.1.0-56-amd64"}, Functions: functions}
}

// traced gives the pipeline the traces of runs, as Open does.
func (w *world) traced(traces ...slim.JobTrace) {
	w.pipe.Traces, w.traces = traces, traces
}

// keys of all steps of the newest build, by their names.
func (w *world) keys() map[string]string {
	w.t.Helper()
	status, err := StoreIn(w.dir).Status("fake", "")
	if err != nil {
		w.t.Fatal(err)
	}
	keys := map[string]string{}
	for _, step := range status.Steps {
		keys[step.Name] = step.Key
	}
	return keys
}

// A trace is an input of the slimming alone. A kernel that it leaves as it was is not
// compiled again, and what is published says which runs it was made of.
func TestTraceOfARun(t *testing.T) {
	w := newWorld(t, nil)
	if _, _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	before := w.keys()
	w.traced(aTrace(3, "seen"))
	candidate, worked, err := w.build()
	if err != nil || !strings.Contains(worked, "slim") || strings.Contains(worked, "compile") || strings.Contains(worked, "measure") {
		t.Fatalf("worked on %s, %v", worked, err)
	}
	after := w.keys()
	for _, step := range []string{"source", "traced-config", "traced", "trace", "plain", "instrumented", "profile", "optimised", "stock", "boot", "fit"} {
		if before[step] == "" || after[step] != before[step] {
			t.Errorf("step %s had the key %q and has %q", step, before[step], after[step])
		}
	}
	if after["slim"] == before["slim"] {
		t.Error("the slimming does not depend on the trace")
	}
	manifest, err := build.ReadManifest(candidate.Kernel)
	want := []build.RunPart{{Run: 3, Node: "n1", Use: build.RunForSlimming, Digest: digest("result")}}
	if err != nil || !slices.Equal(manifest.Runs, want) || manifest.Image.Digest != candidate.ImageDigest {
		t.Errorf("%+v, %v", manifest, err)
	}
	if err := manifest.Verify(candidate.Kernel); err == nil || strings.Contains(err.Error(), build.ImageFile) {
		t.Errorf("the image beside the manifest: %v", err) // these kernels have no configuration of that digest
	}
	file, err := os.Open(candidate.JSON())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var made kernelreport.Report
	err = json.NewDecoder(file).Decode(&made)
	wantRun := kernelreport.SlimmingRun{Run: 3, Results: []build.Part{{Name: "n1", Digest: digest("result")}}, Releases: []string{"6.1.0-56-amd64"}, Named: 1, Unknown: []string{"seen"}}
	if err != nil || len(made.Facts.Slimming.Runs) != 1 || !reflect.DeepEqual(made.Facts.Slimming.Runs[0], wantRun) {
		t.Errorf("%+v, %v", made.Facts.Slimming, err)
	}
	// The kernel that others share says nothing of these runs.
	shared, err := w.store("optimised")
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err := build.ReadManifest(shared); err != nil || manifest.Runs != nil {
		t.Errorf("%+v, %v", manifest.Runs, err)
	}
	// Another trace is another slimming; the same one is none.
	w.traced(aTrace(3, "seen", "too"))
	if _, worked, err := w.build(); err != nil || !strings.Contains(worked, "slim") {
		t.Errorf("worked on %s, %v", worked, err)
	}
	w.traced(aTrace(3, "seen"))
	if _, worked, err := w.build(); err != nil || worked != "" {
		t.Errorf("worked on %s, %v", worked, err)
	}
}

// store has the folder of a step of the newest build.
func (w *world) store(step string) (string, error) {
	status, err := StoreIn(w.dir).Status("fake", "")
	found, _ := status.Step(step)
	return found.Dir, err
}

// The kernel that counts is slimmed by the same runs, and says so where it is
// published; without traces it is what it always was.
func TestInstrumentedOfRuns(t *testing.T) {
	w := newWorld(t, nil)
	if step := w.pipe.InstrumentedStep(); step != "instrumented" {
		t.Error(step)
	}
	w.traced(aTrace(3), aTrace(12))
	step := w.pipe.InstrumentedStep()
	if _, worked, err := w.build(step); err != nil || strings.Contains(worked, "optimised") || !strings.Contains(worked, "compile instrumented") {
		t.Fatalf("worked on %s, %v", worked, err)
	}
	dir, err := w.store(step)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := build.ReadManifest(dir)
	if err != nil || len(manifest.Runs) != 2 || manifest.Runs[1].Run != 12 || manifest.Variant != build.Instrumented {
		t.Errorf("%+v, %v", manifest, err)
	}
	// With counters beside, it is the same kernel of the same step.
	key := w.keys()[step]
	w.pipe.Counters = []Counters{{Run: 7, Node: "n1", BuildID: "ab", Path: archive(t, nil)}}
	if _, worked, err := w.build(step); err != nil || worked != "" || w.keys()[step] != key {
		t.Errorf("worked on %s, %v", worked, err)
	}
	// What is published is this build's, whatever another one of the name did meanwhile.
	other := *w.pipe
	other.Traces = []slim.JobTrace{aTrace(13)}
	if _, err := other.Build(t.Context(), w.runner(), "source"); err != nil {
		t.Fatal(err)
	}
	if made := w.pipe.Folder(step); made != dir || other.Folder(step) != "" {
		t.Errorf("%q and %q, want %q and nothing", made, other.Folder(step), dir)
	}
	// Counters of another kernel are refused with the command that makes this one.
	_, _, err = w.build()
	if !errors.Is(err, ErrOtherSource) && !strings.Contains(err.Error(), ErrOtherSource.Error()) || !strings.Contains(err.Error(), "kernelctl kernel build fake --instrumented --from-run 3,12") {
		t.Error(err)
	}
}

// The manifest names the runs whose counters are the profile, too.
func TestManifestNamesCounters(t *testing.T) {
	path := archive(t, map[string]string{"gcov/x": "y"})
	b := &builder{p: &Pipeline{Recipe: build.Recipe{Name: "fake"}, Counters: []Counters{{Run: 7, Node: "n2", Path: path}}, Traces: []slim.JobTrace{aTrace(3)}}}
	b.add("optimised", "", Inputs{}, nil, light, func(_ context.Context, w *graph.Work) error {
		return kernel(w.Dir, "6.1-made", "optimised", build.Manifest{})
	})
	step := b.named("optimised")
	if b.err != nil {
		t.Fatal(b.err)
	}
	g, err := graph.New(b.steps...)
	if err != nil {
		t.Fatal(err)
	}
	results, err := (&graph.Runner{Store: StoreIn(quickDir(t)), Parallel: 1}).Run(t.Context(), "fake", g)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := graph.FileDigest(path)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := build.ReadManifest(results[step].Files())
	want := []build.RunPart{{Run: 3, Node: "n1", Use: build.RunForSlimming, Digest: digest("result")}, {Run: 7, Node: "n2", Use: build.RunForProfile, Digest: sum}}
	if err != nil || !slices.Equal(manifest.Runs, want) {
		t.Errorf("%+v, %v", manifest.Runs, err)
	}
}

// The kernel's share of the application's own jobs is an input of verdict and report,
// and of nothing else; it goes before the workload's.
func TestShareOfARun(t *testing.T) {
	w := newWorld(t, nil)
	if _, _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	before := w.keys()
	w.pipe.RunShares = []verdict.RunShare{{Run: 3, Kernel: "stock@1", Share: 0.02}}
	candidate, worked, err := w.build()
	if err != nil || worked != "" {
		t.Fatalf("worked on %s, %v", worked, err)
	}
	for step, key := range w.keys() {
		if changed := step == StepVerdict || step == StepReport; changed == (key == before[step]) && step != StepPublish {
			t.Errorf("step %s had the key %q and has %q", step, before[step], key)
		}
	}
	if s := candidate.Measured.ToSlim; s.Source != kb.ShareOfRuns || s.Share.Percent != 2 || s.Whole.Percent != -0.0938 || !slices.Equal(s.Runs, []uint64{3}) {
		t.Errorf("%+v, %+v", s, s.Whole)
	}
}

// Each run is an input of its own, by all that is known of it; without runs there
// is none.
func TestInputsOfRuns(t *testing.T) {
	inputs := Inputs{}
	if err := (Tracer{}).addRuns(inputs); err != nil || len(inputs) != 0 {
		t.Errorf("%v, %v", inputs, err)
	}
	if err := (Tracer{Traces: []slim.JobTrace{aTrace(3, "a"), aTrace(12, "a")}}).addRuns(inputs); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(inputs)), []string{"run 12", "run 3"}) || inputs["run 3"] == inputs["run 12"] {
		t.Error(inputs)
	}
	other := Inputs{}
	if err := (Tracer{Traces: []slim.JobTrace{aTrace(3, "b")}}).addRuns(other); err != nil || other["run 3"] == inputs["run 3"] {
		t.Errorf("%v, %v", other, err)
	}
}
