// SPDX-License-Identifier: Apache-2.0

package corenoise

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

func TestArgumentsAreTheAgents(t *testing.T) {
	got, err := arguments()
	if err != nil || !slices.Contains(got, "nohz_full=1-3") || !slices.Contains(got, "irqaffinity=0") {
		t.Errorf("%q, %v", got, err)
	}
}

// A cause that came in one round of two, or on one side alone, has its zeros.
func TestTable(t *testing.T) {
	on := func(seconds uint64, sources ...profiling.NoiseSource) seen {
		return seen{collector: rates(&profiling.Noise{CPUs: []profiling.CPUNoise{{CPU: 2, WantedNS: seconds * 1e9, Sources: sources}}})}
	}
	timer := func(count uint64) profiling.NoiseSource {
		return profiling.NoiseSource{Kind: profiling.NoiseIRQ, Name: "timer", Count: count}
	}
	thread := profiling.NoiseSource{Kind: profiling.NoiseThread, Name: "kworker", Count: 4}
	r := Result{Rounds: 2, Lines: tabulate([]seen{on(2, timer(500)), on(4, timer(1000), thread)}, []seen{on(2, timer(2)), on(2)},
		func(s seen) map[cause]float64 { return s.collector })}
	if len(r.Lines) != 3 {
		t.Fatalf("%+v", r.Lines)
	}
	want := map[string][2][]float64{
		"all":     {{250, 251}, {1, 0}},
		"timer":   {{250, 250}, {1, 0}},
		"kworker": {{0, 1}, {0, 0}},
	}
	for _, line := range r.Lines {
		if w := want[line.Name]; !slices.Equal(line.Without.Samples, w[0]) || !slices.Equal(line.With.Samples, w[1]) {
			t.Errorf("%s: %v, %v, want %v", line.Name, line.Without.Samples, line.With.Samples, w)
		}
	}
	var text strings.Builder
	if err := r.Print(&text); err != nil || !strings.Contains(text.String(), "irq timer") {
		t.Errorf("%v:\n%s", err, text.String())
	}
	if series := r.Series(); len(series) != 2 || series[1].Name != "Cores/cpu=2/core=with" {
		t.Errorf("%+v", series)
	}
}

// A kernel without a timer that it trusts says so for each core, and no other does.
func TestIsCoarse(t *testing.T) {
	for console, want := range map[string]bool{
		"[    0.728414] Could not switch to high resolution mode on CPU 0\n": true,
		"[    0.704116] tsc: Marking TSC unstable due to clocksource\n":      false,
	} {
		if got := isCoarse([]byte(console)); got != want {
			t.Errorf("%q: %v", console, got)
		}
	}
}

// The table is rtla's own, of one guest.
func TestParseTracer(t *testing.T) {
	table := "\x1b[2;37;40m                                          Operating System Noise                     \x1b[0;0;0m\n" +
		"duration:   0 00:00:11 | time is in us\n" +
		"\x1b[2;30;47mCPU Period       Runtime        Noise  % CPU Aval   Max Noise   Max Single          HW          NMI          IRQ      Softirq       Thread\x1b[0;0;0m\n" +
		"  1 #9          10259150      8943388    12.82525     1085763       213013        1881            0           42           28            3\n" +
		"  2 #10         10000000      8021222    24.45323      926658       208053        3442            1           45           30            4\n"
	found, err := parseTracer(table)
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[cause]float64{
		{cpu: 1, kind: profiling.NoiseIRQ}: 42 / 10.25915, {cpu: 2, kind: profiling.NoiseNMI}: 0.1, {cpu: 2, kind: profiling.NoiseIRQ}: 4.5,
		{cpu: 2, kind: profiling.NoiseSoftIRQ}: 3, {cpu: 2, kind: profiling.NoiseThread}: 0.4, {cpu: 2, name: all}: 8,
	} {
		if got := found[c]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
	}
	for what, table := range map[string]string{
		"prints no core":        "rtla: the tracer is not there\n",
		"did not run on core 1": "  1 #0                 0            0     0.00000           0            0           0            0            0            0            0\n",
	} {
		if found, err := parseTracer(table); err == nil {
			t.Errorf("%s: %v", what, found)
		}
	}
}
