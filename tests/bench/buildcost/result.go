// SPDX-License-Identifier: Apache-2.0

package buildcost

import (
	"fmt"
	"io"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// What is measured. Plain make runs first and last, so that a machine that gets
// slower or quicker meanwhile shows.
const (
	plainMake     = "plain make"
	firstBuild    = "first build with a profile"
	secondProfile = "second profile, same configuration"
)

// The most that builds may cost, as a multiple of plain make.
const (
	mostFirst  = 3.5
	mostSecond = 1.0
)

// Result of a run, in seconds. Processor time decides.
type Result struct {
	Command string             `json:"command"`
	Machine string             `json:"machine"`
	CPU     []*figures.Measure `json:"cpu"`
	Elapsed []*figures.Measure `json:"elapsed"`
	Goals   []figures.Goal     `json:"goals"`
}

// goals are ratios to plain make.
func goals(cpu *figures.Book) ([]figures.Goal, error) {
	var list []figures.Goal
	plain, ok := cpu.Median(plainMake)
	if !ok || plain <= 0 {
		return nil, fmt.Errorf("%s took no time", plainMake)
	}
	for _, goal := range []struct {
		name  string
		limit float64
	}{{firstBuild, mostFirst}, {secondProfile, mostSecond}} {
		took, ok := cpu.Median(goal.name)
		if !ok {
			return nil, fmt.Errorf("%s was not measured", goal.name)
		}
		list = append(list, figures.Judge(goal.name, took/plain, goal.limit, "ratio", fmt.Sprintf("processor time / plain make's %.0f s", plain)))
	}
	return list, nil
}

// Print writes the tables.
func (r *Result) Print(out io.Writer) error {
	if err := figures.Table(out, "PROCESSOR TIME, s", r.CPU); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := figures.Table(out, "ELAPSED, s", r.Elapsed); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return figures.Goals(out, r.Goals)
}
