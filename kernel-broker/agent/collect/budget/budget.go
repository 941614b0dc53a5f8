// SPDX-License-Identifier: Apache-2.0

// Package budget decides when collectors look at a job and when they look away,
// so that they cost it no more than a share of its CPU time. It only decides:
// what the job used and what the collectors cost comes in, and what to do, and
// when to ask again, goes out.
//
// The job's CPU time earns credit, by the share that the site allows, and what
// the collectors cost is paid from it. While there is credit they look, all the
// time: a job that costs less than it earns is never left. Without credit they
// look away until enough is earned for another look. So the bound holds over
// the whole job whatever it does; a phase may cost more, paid by the time before
// it or after it.
package budget

import "time"

const (
	// grant is the credit that a job begins with: what starts it, loading of
	// libraries for the most part, is full of calls and says nothing of the rest.
	grant = 50 * time.Millisecond
	// hoard is how much CPU time a job can earn credit for in advance. It bounds
	// how long a phase may be slowed down after hours without any cost.
	hoard = time.Minute
	// The time between two questions while the collectors look.
	leastAsk = 10 * time.Millisecond
	mostAsk  = 250 * time.Millisecond
	// leastLook is for how long there has to be credit before a look begins.
	leastLook = 2 * leastAsk
	// A pause is so long, half of it more or less by chance: what the job does
	// in step with a clock must not always fall into the pauses.
	pause     = time.Second
	mostPause = 10 * time.Second
)

// Seen is what there is to know, all of it since the start and never less than
// before.
type Seen struct {
	At time.Duration
	// Job is the CPU time of the job, with what the collectors cost in it.
	Job time.Duration
	// Cost is the part of it that the collectors' programs had.
	Cost time.Duration
}

// Step is what to do.
type Step struct {
	Look bool
	// Ask again after so long.
	Ask time.Duration
}

// Controller of one job. Its zero value allows nothing; see New.
type Controller struct {
	share  float64
	most   time.Duration
	credit time.Duration
	before Seen
	// look: what the last step said.
	look bool
	// busy is how many CPUs the job used lately, rate how much of a CPU the
	// collectors cost when they looked last.
	busy, rate float64
	// attach and detach are what they cost last.
	attach, detach time.Duration
	// waning: the last look cost more than it earned.
	waning bool
}

// New is for a share of the CPU time of a job on so many CPUs. It looks.
func New(share float64, cpus int) *Controller {
	return &Controller{
		share: share, credit: grant, most: grant + time.Duration(share*float64(hoard)*float64(cpus)), look: true, busy: 1,
	}
}

// Start is the first step.
func (c *Controller) Start() Step { return Step{Look: true, Ask: leastAsk} }

// Decide says what to do from now on. Chance is a number from 0 up to 1 that
// nothing can foresee.
func (c *Controller) Decide(now Seen, chance float64) Step {
	span := now.At - c.before.At
	cost := now.Cost - c.before.Cost
	// What the job would have used by itself earns; what it used for us does not.
	earned := max(0, now.Job-c.before.Job-cost)
	change := time.Duration(c.share*float64(earned)) - cost
	c.credit, c.waning = min(c.credit+change, c.most), change < 0
	if span > 0 {
		c.busy = float64(now.Job-c.before.Job) / float64(span)
		if c.look {
			c.rate = float64(cost) / float64(span)
		}
	}
	c.before = now
	if c.look {
		return c.looking(chance)
	}
	return c.away(chance)
}

// looking goes on as long as the next question comes before the credit is
// spent, by what the last one has shown.
func (c *Controller) looking(chance float64) Step {
	if c.credit <= 0 || c.waning && c.credit <= c.price(leastAsk) {
		c.look = false
		return Step{Ask: about(pause, chance)}
	}
	// Nothing can cost more than all of the CPUs that the job has.
	return Step{Look: true, Ask: clamp(time.Duration(float64(c.credit)/(c.busy+1)), leastAsk, mostAsk)}
}

// away ends when there is credit for a look. What a look costs may have changed
// meanwhile, so it is believed less each time.
func (c *Controller) away(chance float64) Step {
	needed := c.price(leastLook) + c.attach + c.detach
	if c.credit > needed {
		c.look = true
		return Step{Look: true, Ask: leastAsk}
	}
	c.rate /= 2
	wait := pause
	if earning := c.share * c.busy; earning > 0 {
		wait = clamp(time.Duration(float64(needed-c.credit)/earning), pause, mostPause)
	}
	return Step{Ask: about(wait, chance)}
}

// Turned says what it cost to attach or to detach, as the last step said. It is
// paid like the rest, though it is not the job's own time that it takes.
func (c *Controller) Turned(cost time.Duration) {
	c.credit -= cost
	if c.look {
		c.attach = cost
	} else {
		c.detach = cost
	}
}

// price of a look.
func (c *Controller) price(span time.Duration) time.Duration {
	return time.Duration(c.rate * float64(span))
}

// about is a time, half of it more or less.
func about(span time.Duration, chance float64) time.Duration {
	return time.Duration((0.5 + chance) * float64(span))
}

func clamp(span, least, most time.Duration) time.Duration { return min(max(span, least), most) }
