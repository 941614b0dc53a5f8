// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// Clock shows the time at which it was made and what has passed since. Somebody
// who sets the host's clock changes nothing of it, and so no age that a decision
// hangs on.
type Clock struct {
	began time.Time
	since func() time.Duration
}

// NewClock returns a clock that is set by the host's.
func NewClock() *Clock {
	began := time.Now()
	return &Clock{began: began.Round(0).UTC(), since: func() time.Duration { return time.Since(began) }}
}

// Now is without the runtime's own monotonic reading, as times in records are:
// two times compare the same whether they have been in the store or not.
func (c *Clock) Now() time.Time { return c.began.Add(c.since()) }

// rebase keeps records of a broker before from being of the future: the host's
// clock may have been set back since. What is older than this broker is for the
// plan to see, see plan.Input.Began.
func (r *records) rebase(now time.Time, limits plan.Config) {
	past := func(times ...*time.Time) {
		for _, t := range times {
			if t.After(now) {
				*t = now
			}
		}
	}
	within := func(t *time.Time, most time.Duration) {
		if end := now.Add(most); t.After(end) {
			*t = end
		}
	}
	for _, n := range r.nodes {
		if n.Pending != nil {
			past(&n.Pending.Since, &n.Pending.ResetAt, &n.Pending.Begun, &n.Pending.Loaded, &n.Pending.Executed)
		}
		past(&n.Slurm.Requested.Since, &n.Slurm.Told, &n.Slurm.Awaited.Since, &n.LeftAt)
		if n.Reboot != nil {
			past(&n.Reboot.At)
		}
		within(&n.Told.SlurmdNotBefore, limits.RegisterDelay)
		within(&n.KeptUntil, limits.KeepLimit)
		within(&n.RetryAt, plan.RetryPause)
	}
	for name, b := range r.begun {
		past(&b.At)
		r.begun[name] = b
	}
	for _, a := range r.allocs {
		past(&a.Created, &a.Begun, &a.Since, &a.Ended)
		for name, at := range a.LostAt {
			past(&at)
			a.LostAt[name] = at
		}
	}
	for _, run := range r.runs.open {
		rebaseRun(run, past)
	}
	for _, row := range r.ledger.rows {
		past(&row.First, &row.Last)
		if row.LastFailure != nil {
			past(&row.LastFailure.At)
		}
	}
}

func rebaseRun(run *kb.Run, past func(...*time.Time)) {
	past(&run.Since, &run.Requested, &run.Claimed, &run.Began, &run.Ended)
	for i := range run.Nodes {
		past(&run.Nodes[i].Since)
	}
}
