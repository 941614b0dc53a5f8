// SPDX-License-Identifier: Apache-2.0

package corenoise

import (
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
	on := func(seconds uint64, sources ...profiling.NoiseSource) *profiling.Noise {
		return &profiling.Noise{CPUs: []profiling.CPUNoise{{CPU: 2, WantedNS: seconds * 1e9, Sources: sources}}}
	}
	timer := func(count uint64) profiling.NoiseSource {
		return profiling.NoiseSource{Kind: profiling.NoiseIRQ, Name: "timer", Count: count}
	}
	thread := profiling.NoiseSource{Kind: profiling.NoiseThread, Name: "kworker", Count: 4}
	r := Result{Rounds: 2, Lines: tabulate([]*profiling.Noise{on(2, timer(500)), on(4, timer(1000), thread)}, []*profiling.Noise{on(2, timer(2)), on(2)})}
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
