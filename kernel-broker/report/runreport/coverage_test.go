// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

func text(t *testing.T, result profiling.Result) string {
	t.Helper()
	var out bytes.Buffer
	if err := New(run(), result, noon).Document().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// Whoever reads an estimate reads there that it is one, and what would make it
// exact; an exact figure says nothing of the kind.
func TestEstimatesAreNeverShownAsCounts(t *testing.T) {
	exact := full()
	for _, c := range []profiling.Collector{profiling.CollectIO, profiling.CollectSyscalls} {
		exact.Cover(profiling.Coverage{Node: "n1", Collector: c, Exact: true, BudgetPPM: 40000, SpanNS: 1e9, ObservedNS: 1e9, JobNS: 1e9, ObservedJobNS: 1e9, Events: 20, Estimated: 20, CostNS: 1e7})
	}
	said := text(t, exact)
	for _, part := range []string{"How much of the job each collector observed", "exact", "100 %", "4 %"} {
		if !strings.Contains(said, part) {
			t.Errorf("exact: the report lacks %q", part)
		}
	}
	if strings.Contains(said, "stimate") {
		t.Errorf("exact figures are called estimates: %s", said)
	}

	part := full()
	part.Cover(profiling.Coverage{Node: "n1", Collector: profiling.CollectIO, BudgetPPM: 40000, SpanNS: 1e9, ObservedNS: 125e6, Pauses: 3, JobNS: 1e9, ObservedJobNS: 2e8, Events: 20, Estimated: 100, CostNS: 3e7})
	said = text(t, part)
	for _, want := range []string{
		"Patterns: files that are used alike (estimates)", "All of a kind (estimates)",
		"this collector observed 12 % of the time", "scaled by 5.00", "as seen, and so at least so many or so large, are files and their number",
		"overhead_percent: 0", "io observed 12 % of the time, to cost the job no more than is allowed: its counts are estimates",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the report lacks %q:\n%s", want, said)
		}
	}
	// The other collector's figures are as exact as they were.
	if strings.Contains(said, "Calls (estimates)") || !strings.Contains(said, "Calls CALL") {
		t.Error("the exact collector's figures are called estimates")
	}
}

// What samples is not scaled: its shares hold, and its sums are of the time that it observed.
func TestAPartOfTheTimeIsSaid(t *testing.T) {
	for _, c := range []profiling.Collector{profiling.CollectNoise, profiling.CollectCallgraph} {
		part := full()
		part.Cover(profiling.Coverage{Node: "n1", Collector: c, BudgetPPM: 40000, SpanNS: 1e9, ObservedNS: 125e6, Pauses: 3, JobNS: 1e9, ObservedJobNS: 2e8, CostNS: 3e7})
		said := text(t, part)
		for _, want := range []string{"this collector observed 12 % of the time", "Shares are of that time; as seen", string(c) + " observed 12 % of the time"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: the report lacks %q:\n%s", c, want, said)
			}
		}
		if strings.Contains(said, "are scaled by") {
			t.Errorf("%s: it is called scaled", c)
		}
	}
}

// Two parts of a run on one node are of one node.
func TestNodesAreCountedOnce(t *testing.T) {
	result := full()
	result.Nodes = append(result.Nodes, result.Nodes[0])
	if said := text(t, result); !strings.Contains(said, "from the results of 1 nodes") {
		t.Error(said)
	}
}

// Tables in the kernel have an end. What found no room there is said beside the figures that lack it.
func TestWhatFoundNoRoomIsSaid(t *testing.T) {
	const calls, files, noise = "7 calls that took 3 ms", "9 reads and writes of files", "5 events"
	said := text(t, full())
	for _, part := range []string{calls, files, noise, "found no room"} {
		if strings.Contains(said, part) {
			t.Errorf("nothing was lost, and the report has %q", part)
		}
	}
	result := full()
	result.Syscalls.NotListed = profiling.Part{Count: 7, NS: 3e6}
	result.IO.Overflow.Read.Calls, result.IO.Overflow.Write.Calls = 4, 5
	result.Noise.CPUs[0].Dropped = 5
	said = text(t, result)
	for _, part := range []string{calls, files, noise} {
		if !strings.Contains(said, part) {
			t.Errorf("the report lacks %q:\n%s", part, said)
		}
	}
}
