// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/tests/jsonfile"
)

// Result is what --json writes.
type Result struct {
	Command string    `json:"command"`
	Begun   time.Time `json:"begun"`
	Seconds float64   `json:"seconds"`
	Kernel  string    `json:"kernel"`
	// Machine is the emulator and what it was told.
	Machine string `json:"machine"`
	// Rounds that count; Budget is the bound, as a share.
	Rounds int       `json:"rounds"`
	Budget float64   `json:"budget"`
	Jobs   []Figures `json:"jobs"`
	Goals  []Goal    `json:"goals"`
}

// Figures of a job.
type Figures struct {
	Job Job `json:"job"`
	// Alone is the job without collectors.
	Alone Alone  `json:"alone"`
	With  []With `json:"with"`
}

// Alone is in instructions of the whole machine, and nanoseconds of a clock
// that counts instructions and the time that nothing ran.
type Alone struct {
	Instructions Spread `json:"instructions"`
	ElapsedNS    Spread `json:"elapsed_ns"`
	JobNS        Spread `json:"job_ns"`
	// User is the share of instructions outside of the kernel.
	User float64 `json:"user_share"`
}

// With collectors; figures are percent of the same round's job alone.
type With struct {
	Setup
	Instructions Spread `json:"instructions_percent"`
	Elapsed      Spread `json:"elapsed_percent"`
	JobTime      Spread `json:"job_time_percent"`
	// Own is what the collectors say that they cost.
	Own Spread `json:"own_account_percent"`
	// Looked is the share of the job that they looked at, in percent.
	Looked Spread `json:"looked_percent"`
	// Once are instructions before and after the job, in millions.
	Once Spread `json:"start_and_stop_millions"`
}

// Spread over rounds.
type Spread struct {
	Values []float64 `json:"values"`
	Median float64   `json:"median"`
	Least  float64   `json:"least"`
	Most   float64   `json:"most"`
}

func spread(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Values: values, Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[0], Most: sorted[n-1]}
}

// Goal is the most that a set may add, by what it added.
type Goal struct {
	Job        string  `json:"job"`
	Collectors string  `json:"collectors"`
	Budget     float64 `json:"budget"`
	// Limit in percent; Instructions and Elapsed are medians.
	Limit        float64 `json:"limit"`
	Instructions float64 `json:"instructions"`
	Elapsed      float64 `json:"elapsed"`
	Met          bool    `json:"met"`
}

func whole(r measure.Region) float64 { return float64(r.User.Instructions + r.Kernel.Instructions) }

// summarise leaves out what warmed up.
func summarise(p plan, samples []sample) Figures {
	at := map[[2]int]sample{}
	for _, s := range samples {
		at[[2]int{s.Round, s.Setup}] = s
	}
	over := func(setup int, of func(s, alone sample) float64) Spread {
		var values []float64
		for round := 1; round <= p.Rounds; round++ {
			values = append(values, of(at[[2]int{round, setup}], at[[2]int{round, 0}]))
		}
		return spread(values)
	}
	more := func(of func(sample) float64) func(s, alone sample) float64 {
		return func(s, alone sample) float64 { return 100 * (of(s)/of(alone) - 1) }
	}
	instructions := func(s sample) float64 { return whole(s.Job) }
	elapsed := func(s sample) float64 { return float64(s.ElapsedNS) }
	used := func(s sample) float64 { return float64(s.JobNS) }
	figures := Figures{Job: p.Job, Alone: Alone{
		Instructions: over(0, func(s, _ sample) float64 { return instructions(s) }),
		ElapsedNS:    over(0, func(s, _ sample) float64 { return elapsed(s) }),
		JobNS:        over(0, func(s, _ sample) float64 { return used(s) }),
		User:         over(0, func(s, _ sample) float64 { return float64(s.Job.User.Instructions) / instructions(s) }).Median,
	}}
	for i, setup := range p.Setups {
		if len(setup.Collectors) == 0 {
			continue
		}
		figures.With = append(figures.With, With{
			Setup:        setup,
			Instructions: over(i, more(instructions)),
			Elapsed:      over(i, more(elapsed)),
			JobTime:      over(i, more(used)),
			Own:          over(i, func(s, _ sample) float64 { return 100 * s.Own }),
			Looked:       over(i, func(s, _ sample) float64 { return 100 * s.Looked }),
			Once:         over(i, func(s, _ sample) float64 { return (whole(s.Start) + whole(s.Stop)) / 1e6 }),
		})
	}
	return figures
}

// judge compares with the goals, for exact figures and within the budget.
func (r *Result) judge() {
	r.Goals = nil
	for _, figures := range r.Jobs {
		for _, with := range figures.With {
			limit := 0.0
			switch {
			case slices.Equal(with.Collectors, []profiling.Collector{profiling.CollectNoise}):
				limit = mostNoise
			case len(with.Collectors) > 1:
				limit = figures.Job.Both
			default:
				continue
			}
			g := Goal{
				Job: figures.Job.Name, Collectors: with.Name(), Budget: with.Budget, Limit: limit,
				Instructions: with.Instructions.Median, Elapsed: with.Elapsed.Median,
			}
			g.Met = max(g.Instructions, g.Elapsed) <= limit
			r.Goals = append(r.Goals, g)
		}
	}
}

// Write leaves the result for programs.
func (r *Result) Write(path string) error { return jsonfile.Write(path, r) }
