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
	byBranches    = "first build by branches (AutoFDO)"
)

// The most that builds may cost, as a multiple of plain make, and a build by branches as one of a first build with a profile.
const (
	mostFirst    = 3.5
	mostSecond   = 1.0
	mostBranches = 0.5
)

// Result of a run, in seconds. Processor time decides.
type Result struct {
	Command string             `json:"command"`
	Machine string             `json:"machine"`
	CPU     []*figures.Measure `json:"cpu"`
	Elapsed []*figures.Measure `json:"elapsed"`
	Goals   []figures.Goal     `json:"goals"`
}

// goals are ratios of processor time.
func goals(cpu *figures.Book) ([]figures.Goal, error) {
	var list []figures.Goal
	for _, goal := range []struct {
		name, against string
		limit         float64
	}{{firstBuild, plainMake, mostFirst}, {secondProfile, plainMake, mostSecond}, {byBranches, firstBuild, mostBranches}} {
		base, ok := cpu.Median(goal.against)
		if !ok || base <= 0 {
			return nil, fmt.Errorf("%s took no time", goal.against)
		}
		took, ok := cpu.Median(goal.name)
		if !ok {
			return nil, fmt.Errorf("%s was not measured", goal.name)
		}
		list = append(list, figures.Judge(goal.name, took/base, goal.limit, "ratio", fmt.Sprintf("processor time / %.0f s of %s", base, goal.against)))
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
