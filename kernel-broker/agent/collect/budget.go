// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"os"
	"runtime"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// grant is the initial credit: a job's start, mostly loading of libraries, has many calls and is not typical.
	grant = 50 * time.Millisecond
	// hoard is the maximum CPU time whose credit is saved. It limits how long a phase may be slowed down after hours
	// without cost.
	hoard = time.Minute
	// Limits of the time between two decisions while observing.
	leastAsk = 10 * time.Millisecond
	mostAsk  = 250 * time.Millisecond
	// leastObservation is the minimum time that the credit must cover before observation resumes.
	leastObservation = 2 * leastAsk
	// Duration of a pause, plus or minus a random half: periodic activity of the job must not always coincide with
	// pauses.
	budgetPause     = time.Second
	mostBudgetPause = 10 * time.Second
)

// usage are cumulative values since the start.
type usage struct {
	At time.Duration
	// Job is the CPU time of the job, including the collectors' cost.
	Job time.Duration
	// Cost is the collectors' part of it.
	Cost time.Duration
}

type budgetStep struct {
	Observe bool
	// Ask again after this time.
	Ask time.Duration
}

// budget decides when collectors observe a job and when they pause, so that they cost at most a share of its CPU time.
// It only decides: its inputs are the CPU time of the job and of the collectors, its outputs the next action and its time.
//
// The job's CPU time earns credit at the share that the site allows, and the collectors' cost is paid from it. While
// there is credit they observe continuously: a job that costs less than it earns is never paused. Without credit they
// pause until another observation is affordable. So the limit holds over the whole job; a phase may cost more, paid for
// by the time before or after it.
type budget struct {
	share  float64
	most   time.Duration
	credit time.Duration
	before usage
	// active is the last decision.
	active bool
	// busy is the number of CPUs that the job used lately, rate the collectors' latest cost in CPUs while observing.
	busy, rate float64
	// attach and detach are the latest costs of attaching and detaching.
	attach, detach time.Duration
	// waning: the last observation cost more than it earned.
	waning bool
}

// newBudget returns one for a share of the CPU time of a job on that many CPUs. It starts observing.
func newBudget(share float64, cpus int) *budget {
	return &budget{
		share: share, credit: grant, most: grant + time.Duration(share*float64(hoard)*float64(cpus)), active: true, busy: 1,
	}
}

func (c *budget) start() budgetStep { return budgetStep{Observe: true, Ask: leastAsk} }

// decide returns the next step. chance is a random number in [0, 1).
func (c *budget) decide(now usage, chance float64) budgetStep {
	span := now.At - c.before.At
	cost := now.Cost - c.before.Cost
	// The job's own time earns credit; the collectors' time does not.
	earned := max(0, now.Job-c.before.Job-cost)
	change := time.Duration(c.share*float64(earned)) - cost
	c.credit, c.waning = min(c.credit+change, c.most), change < 0
	if span > 0 {
		c.busy = float64(now.Job-c.before.Job) / float64(span)
		if c.active {
			c.rate = float64(cost) / float64(span)
		}
	}
	c.before = now
	if c.active {
		return c.observing(chance)
	}
	return c.away(chance)
}

// observing continues while the next decision comes before the credit is spent, at the latest rate.
func (c *budget) observing(chance float64) budgetStep {
	if c.credit <= 0 || c.waning && c.credit <= c.price(leastAsk) {
		c.active = false
		return budgetStep{Ask: about(budgetPause, chance)}
	}
	// The cost is at most all CPUs of the job.
	return budgetStep{Observe: true, Ask: clamp(time.Duration(float64(c.credit)/(c.busy+1)), leastAsk, mostAsk)}
}

// away ends when there is credit for an observation. The known cost of one may be outdated, so it counts less each time.
func (c *budget) away(chance float64) budgetStep {
	needed := c.price(leastObservation) + c.attach + c.detach
	if c.credit > needed {
		c.active = true
		return budgetStep{Observe: true, Ask: leastAsk}
	}
	c.rate /= 2
	wait := budgetPause
	if earning := c.share * c.busy; earning > 0 {
		wait = clamp(time.Duration(float64(needed-c.credit)/earning), budgetPause, mostBudgetPause)
	}
	return budgetStep{Ask: about(wait, chance)}
}

// turned records the cost of attaching or detaching. It is paid from the credit, although it is not the job's CPU time.
func (c *budget) turned(cost time.Duration) {
	c.credit -= cost
	if c.active {
		c.attach = cost
	} else {
		c.detach = cost
	}
}

// price of an observation.
func (c *budget) price(span time.Duration) time.Duration {
	return time.Duration(c.rate * float64(span))
}

// about returns the time plus or minus a random half.
func about(span time.Duration, chance float64) time.Duration {
	return time.Duration((0.5 + chance) * float64(span))
}

func clamp(span, least, most time.Duration) time.Duration { return min(max(span, least), most) }

// nodeCPUs counts the CPUs of the node. The agent itself may be restricted to the system's.
func nodeCPUs() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	cpus, err := kb.ParseCPUs(strings.TrimSpace(string(text)))
	if err != nil {
		return runtime.NumCPU()
	}
	return len(cpus)
}
