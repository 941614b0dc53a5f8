// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"fmt"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
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
	Rounds int            `json:"rounds"`
	Budget float64        `json:"budget"`
	Jobs   []Figures      `json:"jobs"`
	Goals  []figures.Goal `json:"goals"`
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
	Instructions figures.Spread `json:"instructions"`
	ElapsedNS    figures.Spread `json:"elapsed_ns"`
	JobNS        figures.Spread `json:"job_ns"`
	// User is the share of instructions outside of the kernel.
	User float64 `json:"user_share"`
}

// With collectors; figures are percent of the same round's job alone.
type With struct {
	Setup
	Instructions figures.Spread `json:"instructions_percent"`
	Elapsed      figures.Spread `json:"elapsed_percent"`
	JobTime      figures.Spread `json:"job_time_percent"`
	// Own is what the collectors say that they cost.
	Own figures.Spread `json:"own_account_percent"`
	// Looked is the share of the job that they looked at, in percent.
	Looked figures.Spread `json:"looked_percent"`
	// Once are instructions before and after the job, in millions.
	Once figures.Spread `json:"start_and_stop_millions"`
}

func whole(r measure.Region) float64 { return float64(r.User.Instructions + r.Kernel.Instructions) }

// summarise leaves out what warmed up.
func summarise(p plan, samples []sample) Figures {
	at := map[[2]int]sample{}
	for _, s := range samples {
		at[[2]int{s.Round, s.Setup}] = s
	}
	over := func(setup int, of func(s, alone sample) float64) figures.Spread {
		var values []float64
		for round := 1; round <= p.Rounds; round++ {
			values = append(values, of(at[[2]int{round, setup}], at[[2]int{round, 0}]))
		}
		return figures.Of(values)
	}
	more := func(of func(sample) float64) func(s, alone sample) float64 {
		return func(s, alone sample) float64 { return 100 * (of(s)/of(alone) - 1) }
	}
	instructions := func(s sample) float64 { return whole(s.Job) }
	elapsed := func(s sample) float64 { return float64(s.ElapsedNS) }
	used := func(s sample) float64 { return float64(s.JobNS) }
	job := Figures{Job: p.Job, Alone: Alone{
		Instructions: over(0, func(s, _ sample) float64 { return instructions(s) }),
		ElapsedNS:    over(0, func(s, _ sample) float64 { return elapsed(s) }),
		JobNS:        over(0, func(s, _ sample) float64 { return used(s) }),
		User:         over(0, func(s, _ sample) float64 { return float64(s.Job.User.Instructions) / instructions(s) }).Median,
	}}
	for i, setup := range p.Setups {
		if len(setup.Collectors) == 0 {
			continue
		}
		job.With = append(job.With, With{
			Setup:        setup,
			Instructions: over(i, more(instructions)),
			Elapsed:      over(i, more(elapsed)),
			JobTime:      over(i, more(used)),
			Own:          over(i, func(s, _ sample) float64 { return 100 * s.Own }),
			Looked:       over(i, func(s, _ sample) float64 { return 100 * s.Looked }),
			Once:         over(i, func(s, _ sample) float64 { return (whole(s.Start) + whole(s.Stop)) / 1e6 }),
		})
	}
	return job
}

// judge compares with the goals, for exact figures and within the budget.
func (r *Result) judge() {
	r.Goals = nil
	for _, job := range r.Jobs {
		for _, with := range job.With {
			limit := 0.0
			switch {
			case slices.Equal(with.Collectors, []profiling.Collector{profiling.CollectNoise}):
				limit = mostNoise
			case len(with.Collectors) > 1:
				limit = job.Job.Both
			default:
				continue
			}
			// Both figures have to be within the goal.
			r.Goals = append(r.Goals, figures.Judge(job.Job.Name, max(with.Instructions.Median, with.Elapsed.Median), limit, "%",
				fmt.Sprintf("%s, budget %s: the larger of instructions %.2f and time %.2f", with.Name(), bound(with.Budget), with.Instructions.Median, with.Elapsed.Median)))
		}
	}
}

// Series for benchstat.
func (r *Result) Series() []figures.Series {
	var all []figures.Series
	for _, job := range r.Jobs {
		name := "Collect/job=" + job.Job.Name
		all = append(all, figures.Series{Name: name + "/collectors=none", Unit: "instructions/op", Samples: job.Alone.Instructions.Samples})
		for _, with := range job.With {
			set := fmt.Sprintf("%s/collectors=%s/budget=%g", name, with.Name(), with.Budget)
			all = append(all, figures.Series{Name: set, Unit: "added-instructions-%", Samples: with.Instructions.Samples},
				figures.Series{Name: set, Unit: "added-time-%", Samples: with.Elapsed.Samples})
		}
	}
	return all
}
