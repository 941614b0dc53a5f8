// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Setup is a way to run the job.
type Setup struct {
	// Collectors are none for the reference.
	Collectors []profiling.Collector `json:"collectors"`
	// Budget is the share of the job's CPU time that they may cost; 0 is no
	// bound.
	Budget float64 `json:"budget"`
}

// Name as in tables.
func (s Setup) Name() string {
	if len(s.Collectors) == 0 {
		return "none"
	}
	names := make([]string, 0, len(s.Collectors))
	for _, c := range s.Collectors {
		names = append(names, string(c))
	}
	return strings.Join(names, "+")
}

// sets of collectors that are measured.
var sets = [][]profiling.Collector{
	{profiling.CollectSyscalls},
	{profiling.CollectIO},
	{profiling.CollectSyscalls, profiling.CollectIO},
	{profiling.CollectNoise},
}

// setups are the reference, and each set without a bound and with the budget.
func setups(budget float64) []Setup {
	all := []Setup{{}}
	for _, set := range sets {
		all = append(all, Setup{set, 0})
		if budget > 0 {
			all = append(all, Setup{set, budget})
		}
	}
	return all
}

// plan is what a guest is to do.
type plan struct {
	Job    Job     `json:"job"`
	Rounds int     `json:"rounds"`
	Setups []Setup `json:"setups"`
}

// turn is one job of the plan; those of round 0 warm up and do not count.
type turn struct{ round, setup int }

// turns in their order. A round begins with another setup than the one before
// it, and every second goes backwards, so that nothing is always first.
func (p plan) turns() []turn {
	all := []turn{{0, 0}}
	for round := range p.Rounds {
		order := make([]turn, len(p.Setups))
		for i := range order {
			order[i] = turn{round + 1, (i + 2*round) % len(p.Setups)}
		}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		all = append(all, order...)
	}
	return all
}

// ran is a job that was run.
type ran struct {
	Round int `json:"round"`
	Setup int `json:"setup"`
	// ElapsedNS from its begin to its end, JobNS the CPU time that its cgroup
	// used.
	ElapsedNS uint64 `json:"elapsed_ns"`
	JobNS     uint64 `json:"job_ns"`
	// Looked is the share of the job's CPU time that was looked at, Own what the
	// collectors cost by their own account, as a share of the job's CPU time
	// without them.
	Looked float64 `json:"looked"`
	Own    float64 `json:"own"`
}

func readPlan(path string) (plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return plan{}, fmt.Errorf("plan: %w", err)
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return plan{}, fmt.Errorf("plan %q: %w", path, err)
	}
	return p, nil
}
