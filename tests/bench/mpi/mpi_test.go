// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const printed = `{"nodes": ["n1", "n2"], "library": "MPICH Version: 4.0.2", "samples": 25, "messages": 32,
 "latency_seconds": [{"bytes": 0, "median": 0.001, "q1": 0.0009, "q3": 0.0012, "min": 0.0008, "max": 0.01}],
 "bandwidth_bytes_per_second": [{"bytes": 16000, "median": 4e6, "q1": 3e6, "q3": 5e6, "min": 1e6, "max": 6e6}]}`

// leave writes what a job leaves in its user's home, with one file changed.
func leave(t *testing.T, kind, text string) string {
	t.Helper()
	home := t.TempDir()
	files := map[string]string{"json": printed, "releases": "6.1.0-slim\n", "mitigations": "meltdown:Mitigation: PTI\nmds:Not affected\n"}
	if kind != "" {
		files[kind] = text
	}
	for kind, text := range files {
		if err := os.WriteFile(filepath.Join(home, "one."+kind), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

func TestOutcome(t *testing.T) {
	o, err := outcome(leave(t, "", ""), "one")
	if err != nil || o.Release != "6.1.0-slim" || len(o.Mitigations) != 2 || o.Latency[0].Median != 0.001 || o.Bandwidth[0].Bytes != 16000 {
		t.Fatalf("%+v, %v", o, err)
	}
	if o, err := outcome(leave(t, "mitigations", ""), "one"); err != nil || o.Mitigations != nil {
		t.Errorf("a kernel without mitigations: %q, %v", o.Mitigations, err)
	}
	if _, err := outcome(t.TempDir(), "one"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a job that left nothing: %v", err)
	}
}

func TestOutcomeRefuses(t *testing.T) {
	for want, change := range map[string][2]string{
		"not on two nodes":      {"json", strings.Replace(printed, `"n2"`, `"n1"`, 1)},
		"not on one kernel":     {"releases", "6.1.0-slim\n6.1.0-stock\n"},
		"no rows":               {"json", strings.Replace(printed, "bandwidth_bytes", "other", 1)},
		"median 0":              {"json", strings.Replace(printed, `"median": 0.001`, `"median": 0`, 1)},
		"mpi-pingpong printed:": {"json", printed[:40]},
	} {
		if o, err := outcome(leave(t, change[0], change[1]), "one"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, o, err)
		}
	}
}

func measured(kernel string, round int, latency, bandwidth float64) Outcome {
	return Outcome{Kernel: kernel, Round: round, Latency: []Row{{Bytes: 8, Median: latency}}, Bandwidth: []Row{{Bytes: 16000, Median: bandwidth}}}
}

// A host that gets slower changes times and not the ratios of rounds, in whatever
// order their jobs ran.
func TestRatiosAreOfOneRound(t *testing.T) {
	kernels := []string{"stock", "slim"}
	all := []Outcome{
		measured("stock", 1, 100e-6, 8e6), measured("slim", 1, 80e-6, 10e6),
		measured("slim", 2, 240e-6, 5e6), measured("stock", 2, 300e-6, 4e6),
	}
	lines, err := tabulate(kernels, all)
	if err != nil || len(lines) != 2 {
		t.Fatalf("%+v, %v", lines, err)
	}
	latency, bandwidth := lines[0].Figures[1], lines[1].Figures[1]
	if r := latency.Ratio; r.Q1 < 0.7999 || r.Q3 > 0.8001 || latency.Jobs.Max != 240e-6 {
		t.Errorf("latency %+v", latency)
	}
	if r := bandwidth.Ratio; r.Min != 1.25 || r.Max != 1.25 {
		t.Errorf("bandwidth %+v", bandwidth)
	}
	r := &Result{Kernels: kernels, Rounds: 2, Lines: lines, Outcomes: all, Accel: "tcg", Unequal: []string{"slim"}}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TO stock", "0.800", "1.250", "slim does not do the same as stock", "accelerator tcg"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if s := r.Series(); len(s) != 4 || s[1].Name != "MPI/what=latency/bytes=8/kernel=slim" || s[1].Samples[1] != 240e-6 {
		t.Errorf("series %+v", s)
	}
}

func TestTableRefusesHoles(t *testing.T) {
	kernels := []string{"stock", "slim"}
	if _, err := tabulate(kernels, []Outcome{measured("stock", 1, 1, 1)}); err == nil || !strings.Contains(err.Error(), "0 jobs beside 1") {
		t.Errorf("a round without a kernel: %v", err)
	}
	other := measured("slim", 1, 1, 1)
	other.Latency[0].Bytes = 4
	if _, err := tabulate(kernels, []Outcome{measured("stock", 1, 1, 1), other}); err == nil || !strings.Contains(err.Error(), "no latency of 8 bytes") {
		t.Errorf("another size: %v", err)
	}
}

func TestTurnsAndMitigations(t *testing.T) {
	kernels := []string{"stock", "slim", "mitgcm"}
	if got := turn(kernels, 4); !slices.Equal(got, []string{"slim", "mitgcm", "stock"}) {
		t.Errorf("round 5 is %v", got)
	}
	if !slices.Equal(kernels, []string{"stock", "slim", "mitgcm"}) {
		t.Errorf("the list became %v", kernels)
	}
	all := []Outcome{{Kernel: "stock", Mitigations: []string{"a"}}, {Kernel: "slim", Mitigations: []string{"a"}}, {Kernel: "mitgcm"}}
	if got := unequal(kernels, all); !slices.Equal(got, []string{"mitgcm"}) {
		t.Errorf("unequal: %v", got)
	}
}

func TestOptions(t *testing.T) {
	program := filepath.Join(t.TempDir(), "mpi-pingpong")
	good := Options{Own: "stock", Kernels: []string{"slim"}, Rounds: 1, Samples: 1, Messages: 16, Program: program}
	if err := good.validate(); err == nil || !strings.Contains(err.Error(), "make bench-mpi") {
		t.Errorf("no program: %v", err)
	}
	if err := os.WriteFile(program, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for want, kernels := range map[string][]string{"at least one": nil, "named twice": {"stock"}, "not the name": {"../slim"}} {
		bad := good
		bad.Kernels = kernels
		if err := bad.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", kernels, err)
		}
	}
}
