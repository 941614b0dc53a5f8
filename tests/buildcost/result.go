// SPDX-License-Identifier: Apache-2.0

package buildcost

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kernelbroker/kernelbroker/tests/jsonfile"
)

// What is measured. Plain make runs first and last, so that a machine that gets
// slower or quicker meanwhile shows.
const (
	plainOnce     = "plain make"
	plainAgain    = "plain make, again"
	firstBuild    = "first build with a profile"
	secondProfile = "second profile, same configuration"
)

// The most that builds may cost, as a multiple of plain make.
const (
	mostFirst  = 3.5
	mostSecond = 1.0
)

// Result of a run.
type Result struct {
	Command string `json:"command"`
	Machine string `json:"machine"`
	Costs   []Cost `json:"costs"`
	Ratios  []Goal `json:"ratios,omitempty"`
}

// Goal is a ratio to the mean of both plain builds, and the most it may be.
type Goal struct {
	What    string  `json:"what"`
	CPU     float64 `json:"cpu_ratio"`
	Elapsed float64 `json:"elapsed_ratio"`
	Most    float64 `json:"most"`
	Met     bool    `json:"met"`
}

// Judge fills in the ratios. Processor time decides.
func (r *Result) Judge() error {
	cost := map[string]Cost{}
	for _, c := range r.Costs {
		cost[c.What] = c
	}
	plain := Cost{
		CPU:     (cost[plainOnce].CPU + cost[plainAgain].CPU) / 2,
		Elapsed: (cost[plainOnce].Elapsed + cost[plainAgain].Elapsed) / 2,
	}
	if plain.CPU <= 0 || plain.Elapsed <= 0 {
		return fmt.Errorf("plain make took no time: %+v", r.Costs)
	}
	r.Ratios = nil
	for _, goal := range []Goal{{What: firstBuild, Most: mostFirst}, {What: secondProfile, Most: mostSecond}} {
		c, measured := cost[goal.What]
		if !measured {
			return fmt.Errorf("%s was not measured", goal.What)
		}
		goal.CPU, goal.Elapsed = c.CPU/plain.CPU, c.Elapsed/plain.Elapsed
		goal.Met = goal.CPU <= goal.Most
		r.Ratios = append(r.Ratios, goal)
	}
	return nil
}

// Print writes two tables.
func (r *Result) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "BUILD\tCPU s\tELAPSED s")
	for _, c := range r.Costs {
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\n", c.What, c.CPU, c.Elapsed)
	}
	fmt.Fprintln(table, "\nAGAINST PLAIN MAKE\tCPU\tELAPSED\tGOAL\t")
	for _, g := range r.Ratios {
		met := "met"
		if !g.Met {
			met = "not met"
		}
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.1f\t%s\n", g.What, g.CPU, g.Elapsed, g.Most, met)
	}
	return table.Flush()
}

// Write leaves the result for programs.
func (r *Result) Write(path string) error { return jsonfile.Write(path, r) }
