// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	r := Result{Runs: []Figures{
		{1000, map[string]float64{"connect_cpu": 1.1, "connect_dials": 1000, "idle_cpu": 3.1, "wave_ready": 10, "wave_jobs": 10, "wave_cpu": 18.7, "kill_ready": 10, "kill_jobs": 10, "kill_drained": 0}},
		{10000, map[string]float64{"connect_cpu": 60, "connect_dials": 102717, "idle_cpu": 4.9, "wave_ready": 100, "wave_jobs": 100, "wave_cpu": 11.4, "kill_ready": 0, "kill_jobs": 100, "kill_drained": 1164}},
	}}
	r.Goals = goals(r.Runs)
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"connect: CPU 1.10 s 60 s 54.5x 20 s not reached", "connect: dials 1,000 102,717 103x 12,000 not reached",
		"idle: of a core 3.10 % 4.90 % 1.58x 5 % reached", "wave: jobs ready 10 of 10 100 of 100 - all reached",
		"wave: CPU a node 18.7 ms 11.4 ms 0.61x as at 1,000 reached", "killed in a wave: jobs ready 10 of 10 0 of 100 - all not reached",
		"healthy nodes drained 0 1,164 - 0 not reached", "connect: until acknowledged - - - - -", "wave: beyond the agents', median - - - 1 s not reached",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	// Goals are for 10,000 nodes.
	if got := goals(r.Runs[:1]); len(got) != 0 {
		t.Errorf("%v", got)
	}
	names := map[string]bool{}
	for _, s := range r.Series() {
		names[s.Name] = true
		if strings.ContainsAny(s.Name, " :") {
			t.Errorf("name %q", s.Name)
		}
	}
	if len(names) != 2*len(rows) {
		t.Errorf("%d names", len(names))
	}
}

func TestProcessorOf(t *testing.T) {
	const stat = "42 (kernel ) broker) S 1 42 42 0 -1 4194560 100 7 0 0 150 50 900 900 20 0 9 0 1 2 3"
	if got, err := processorOf(stat); err != nil || got != 2 {
		t.Errorf("%v s, %v", got, err)
	}
	if _, err := processorOf("42 (x) S 1"); err == nil {
		t.Error("a line that is cut")
	}
}

func TestNumbersOfNodes(t *testing.T) {
	for _, nodes := range [][]int{nil, {10}, {10000, 1000}, {1000, 100_000}} {
		if _, err := Run(t.Context(), Options{Nodes: nodes}, nil); err == nil {
			t.Errorf("%v", nodes)
		}
	}
}
