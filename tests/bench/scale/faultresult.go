// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// Faults of one kind and what followed. Seconds are from the fault.
type Faults struct {
	Kind  string `json:"kind"`
	Times int    `json:"times"`
	// Acts is until the other broker acts, Hooks until a hook is answered, First and Agents until the first and all agents hear of it.
	Acts   []float64 `json:"acts_s,omitempty"`
	Hooks  []float64 `json:"hook_s,omitempty"`
	First  []float64 `json:"first_agent_s,omitempty"`
	Agents []float64 `json:"all_agents_s,omitempty"`
	// Handed: another broker acts although none was touched.
	Handed  int `json:"handed_over"`
	Drained int `json:"nodes_drained"`
	// Commands and Messages are what the old broker gave Slurm and agents after another one had followed it.
	Commands int      `json:"commands_of_the_old"`
	Messages int      `json:"messages_of_the_old"`
	Given    []string `json:"given_by_the_old,omitempty"`
	Work
}

// FaultResult of a run.
type FaultResult struct {
	Command string    `json:"command"`
	Machine string    `json:"machine"`
	Begun   time.Time `json:"begun"`
	Nodes   int       `json:"nodes"`
	Load    float64   `json:"load"`
	Kinds   []Faults  `json:"kinds"`
}

// last is how the last one went.
func (t *Faults) last() (text string) {
	for _, s := range []struct {
		name    string
		samples []float64
	}{{"acts", t.Acts}, {"hook", t.Hooks}, {"agents", t.Agents}} {
		if len(s.samples) > 0 {
			text += fmt.Sprintf("%s %.2f s ", s.name, s.samples[len(s.samples)-1])
		}
	}
	return text + fmt.Sprintf("commands of the old %d", t.Commands)
}

// spread is median, 95th percentile (nearest rank) and worst.
func spread(samples []float64) string {
	if len(samples) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := (95*len(sorted) + 99) / 100
	return fmt.Sprintf("%.1f / %.1f / %.1f", figures.Of(samples).Median, sorted[rank-1], sorted[len(sorted)-1])
}

// Print writes the table.
func (r *FaultResult) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tTIMES\tACTS, S\tHOOK, S\tAGENTS, S\tJOBS\tLOST\tDRAINED\tBOOTS BEYOND\tWRONG KERNEL\tOLD: COMMANDS\tMESSAGES\tHANDED OVER\tSLOWEST PROLOG, S")
	for _, t := range r.Kinds {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\n", t.Kind, t.Times, spread(t.Acts), spread(t.Hooks), spread(t.Agents),
			t.Jobs, t.Lost, t.Drained, t.Boots, t.Wrong, t.Commands, t.Messages, t.Handed, t.Slowest)
	}
	fmt.Fprintf(w, "Seconds: median / 95th / worst. %d nodes, %s, load average up to %.1f\n", r.Nodes, r.Machine, r.Load)
	for _, t := range r.Kinds {
		for _, e := range slices.Concat(t.Examples, t.Given) {
			fmt.Fprintf(w, "%s: %s\n", t.Kind, e)
		}
	}
	return w.Flush()
}

// Series are the figures for benchstat.
func (r *FaultResult) Series() (all []figures.Series) {
	for _, t := range r.Kinds {
		for what, samples := range map[string][]float64{"acts": t.Acts, "hook": t.Hooks, "agents": t.Agents} {
			all = append(all, figures.Series{Name: "Faults/kind=" + t.Kind + "/until=" + what, Unit: "s", Samples: samples})
		}
	}
	return all
}
