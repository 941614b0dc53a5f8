// SPDX-License-Identifier: Apache-2.0

//go:build lab

package measure

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

const top = "../../.."

func bench(t *testing.T) Bench {
	t.Helper()
	cache := os.Getenv("KB_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(dir, "kernel-broker")
	}
	b := Bench{
		Plugin: top + "/build/measure/kbcount.so",
		Places: workload.Places{Programs: top + "/build/workloads", Cache: cache},
	}
	for _, path := range []string{b.Plugin, b.Places.Programs} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: make build-c", err)
		}
	}
	return b
}

func kernel(t *testing.T, name string) Kernel {
	t.Helper()
	k := Kernel{Name: name, Dir: filepath.Join(top, "build/kernels", name)}
	if _, err := os.Stat(k.image()); err != nil {
		t.Fatalf("%v: make kernels", err)
	}
	return k
}

// small makes a run short: the paths are the same, and so is the exactness.
func small(t *testing.T, name string, size int64) workload.Workload {
	t.Helper()
	w, err := workload.Load(top+"/catalog", name)
	if err != nil {
		t.Fatal(err)
	}
	w.Test.Size = size
	return w
}

// chosen are the workloads that a run of the tests takes; KB_WORKLOADS="redis
// nginx" chooses others, with their whole size, and KB_KERNELS the kernels.
func chosen(t *testing.T) []workload.Workload {
	t.Helper()
	names := strings.Fields(os.Getenv("KB_WORKLOADS"))
	if len(names) == 0 {
		return []workload.Workload{small(t, "io-write8", 300), small(t, "syscall-mix", 40)}
	}
	var all []workload.Workload
	for _, name := range names {
		w, err := workload.Load(top+"/catalog", name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

func TestMeasuringRepeatsExactly(t *testing.T) {
	b := bench(t)
	k := kernel(t, "mitgcm")
	w := small(t, "io-write8", 300)
	var all []Measurement
	for range 2 {
		m, err := b.Measure(t.Context(), k, w, w.Test, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if !reflect.DeepEqual(all[0], all[1]) {
		t.Errorf("two runs differ:\n%+v\n%+v", all[0], all[1])
	}
	for _, sample := range all[0].Samples {
		if sample.Metric != verdict.KernelInstructions {
			continue
		}
		// A write of 8 bytes is neither free nor a copy of a megabyte.
		if sample.Values[0] < 300 || sample.Values[0] > 50000 {
			t.Errorf("%s takes %v instructions", sample.Part, sample.Values)
		}
		t.Logf("%s: %.1f", sample.Part, sample.Values[0])
	}
	for _, region := range all[0].Runs[0] {
		for side, counts := range map[string]Counts{"user": region.User, "kernel": region.Kernel} {
			if counts.L1DMisses == 0 || counts.DTLBMisses == 0 || counts.ITLBMisses == 0 || counts.L1DMisses > 2*counts.Instructions+counts.RepIterations {
				t.Errorf("%s, %s: %+v", region.Name, side, counts)
			}
		}
		if region.TextPages < 10 || region.TextLines < region.TextPages || region.TextLines > 64*region.TextPages {
			t.Errorf("%s: %d lines in %d pages of code", region.Name, region.TextLines, region.TextPages)
		}
		t.Logf("%s: kernel %+v, %d lines and %d pages of code", region.Name, region.Kernel, region.TextLines, region.TextPages)
	}
	if !all[0].Samples[0].Exact || len(all[0].Mitigations) == 0 {
		t.Errorf("measurement is %+v", all[0])
	}
}

func TestFiguresOfKernels(t *testing.T) {
	b := bench(t)
	names := strings.Fields(os.Getenv("KB_KERNELS"))
	if len(names) == 0 {
		names = []string{"mitgcm"}
	}
	var samples []verdict.Sample
	for _, w := range chosen(t) {
		for _, name := range names {
			m, err := b.Measure(t.Context(), kernel(t, name), w, w.Test, t.TempDir())
			if err != nil {
				t.Error(err)
				continue
			}
			samples = append(samples, m.Samples...)
		}
	}
	for _, s := range samples {
		t.Logf("%s %s on %s: %s: %v %s", s.Workload, s.Part, s.Kernel, verdict.MetricName(s.Metric), s.Values, s.Unit)
	}
}

func TestTraceTellsTheWorkloadFromTheBoot(t *testing.T) {
	b := bench(t)
	w := small(t, "io-write8", 300)
	w.Train.Size = 100
	whole, work, err := b.Trace(t.Context(), kernel(t, "mitgcm"), w, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(path string) map[string]bool {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(line, "ffffffff") {
				t.Fatalf("%s: %q", path, line)
			}
			found[line] = true
		}
		return found
	}
	all, some := blocks(whole), blocks(work)
	if len(some) < 100 || len(all) < 5*len(some) {
		t.Errorf("%d blocks, %d for the workload", len(all), len(some))
	}
	for line := range some {
		if !all[line] {
			t.Fatalf("block %q ran for the workload, and not at all", line)
		}
	}
}

func TestWorkloadThatFailsIsSaidToFail(t *testing.T) {
	b := bench(t)
	w := small(t, "io-write8", 100)
	w.Check = "echo the sea is dry; false"
	_, err := b.Measure(t.Context(), kernel(t, "mitgcm"), w, w.Test, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), `workload "io-write8" on kernel "mitgcm"`) ||
		!strings.Contains(err.Error(), "check failed:\nthe sea is dry") {
		t.Errorf("error is %v", err)
	}
}
