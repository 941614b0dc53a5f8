// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Incompleteness fits in one short line: each reason appears once for all its collectors, with the remedy.
func TestPartialSummary(t *testing.T) {
	refusal := func(node string, c profiling.Collector, part, detail, remedy string) profiling.Refusal {
		return profiling.Refusal{Node: node, Part: part, Unsupported: profiling.Unsupported{Collector: c, Detail: detail, Remedy: remedy}}
	}
	for name, c := range map[string]struct {
		result profiling.Result
		want   string
	}{
		"nothing":             {profiling.Result{}, ""},
		"a part is no reason": {profiling.Result{Refused: []profiling.Refusal{refusal("n1", "io", "seeks", "none", "")}}, ""},
		"one reason for two, on two nodes": {profiling.Result{Refused: []profiling.Refusal{
			refusal("n1", "io", "", "no types", "take another kernel; this one has none"),
			refusal("n2", "io", "", "no types", "take another kernel; this one has none"),
			refusal("n1", "noise", "", "no types", "take another kernel; this one has none"),
		}}, "io, noise: no types: take another kernel"},
		"two reasons, and what was missed": {profiling.Result{
			Refused: []profiling.Refusal{refusal("n1", "io", "", "no types", ""), refusal("n1", "callgraph", "", "no clock", "mend it")},
			Partial: []profiling.Partial{{Collector: "syscalls", Why: "lost"}, {Why: "late"}},
		}, "io: no types; callgraph: no clock: mend it; syscalls: lost; late"},
	} {
		if got := partial(c.result); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
