// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// slurmctld is polled often while a change is near, and not for days because of a node that is dead or drained.
func TestPauseBetweenLooks(t *testing.T) {
	const short, long = time.Minute, 2 * busyTime
	allocation := func(phase kb.Phase, age time.Duration) func(*Controller, *kb.Node) {
		return func(c *Controller, _ *kb.Node) {
			id := kb.JobID{Job: 7}
			c.records.allocs[id] = &kb.Allocation{ID: id, Phase: phase, Since: c.clock.Now().Add(-age)}
		}
	}
	node := func(age time.Duration, change func(n *kb.Node, since time.Time)) func(*Controller, *kb.Node) {
		return func(c *Controller, n *kb.Node) {
			since := c.clock.Now().Add(-age)
			c.sessions["n1"] = &Session{controller: c, node: "n1", agent: plan.Agent{Connected: true, Since: since}}
			change(n, since)
		}
	}
	dead := func(change func(n *kb.Node)) func(*Controller, *kb.Node) {
		return func(_ *Controller, n *kb.Node) { change(n) }
	}
	drained := func(n *kb.Node, _ time.Time) { n.Slurm.Restore = &kb.OutOfService{Reason: "bad DIMM"} }
	reboots := func(n *kb.Node, since time.Time) { n.Reboot = &kb.Reboot{At: since} }
	held := func(n *kb.Node, _ time.Time) { n.Told.Slurmd = kb.SlurmdHeld }
	waits := func(n *kb.Node, since time.Time) { n.Slurm.Awaited = kb.SlurmBoot{Phase: kb.BootIssued, Since: since} }
	owned := func(change func(*kb.Node, time.Time)) func(*kb.Node, time.Time) {
		return func(n *kb.Node, since time.Time) { change(n, since); n.Owner = kb.JobID{Job: 7} }
	}
	for name, c := range map[string]struct {
		change func(*Controller, *kb.Node)
		busy   bool
	}{
		"nothing":                         {dead(func(*kb.Node) {}), false},
		"a switch":                        {allocation(kb.PhaseSwitching, short), true},
		"nodes return":                    {allocation(kb.PhaseReturning, short), true},
		"a node never returns":            {allocation(kb.PhaseReturning, long), false},
		"a failed job stays in the queue": {allocation(kb.PhaseFailed, long), false},
		"a boot that Slurm waits for":     {node(short, waits), true},
		"it never comes":                  {node(long, waits), false},
		"a boot":                          {dead(func(n *kb.Node) { n.Pending = &kb.Pending{} }), true},
		"kept":                            {dead(func(n *kb.Node) { n.KeptFor = "8" }), true},
		"back, and drained":               {node(short, drained), true},
		"drained for long":                {node(long, drained), false},
		"drained under a job":             {node(short, owned(drained)), false},
		"drained and dead":                {dead(func(n *kb.Node) { drained(n, time.Time{}) }), false},
		"a reboot":                        {node(short, reboots), true},
		"a reboot behind a long job":      {node(long, reboots), false},
		"a reboot behind a job of ours":   {node(short, owned(reboots)), false},
		"slurmd is held":                  {node(short, held), true},
		"slurmd is held for long":         {node(long, held), false},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := bare(t)
			f.c.o.PollBusy, f.c.o.PollIdle = time.Second, 2*time.Second
			n := &kb.Node{Name: "n1"}
			f.c.records.nodes["n1"] = n
			c.change(f.c, n)
			f.c.marks.awake = plan.Everything(plan.Input{Nodes: f.c.records.nodes, Allocations: f.c.records.allocs})
			if busy := f.c.pauseLocked(time.Millisecond, nil) == time.Second; busy != c.busy {
				t.Errorf("busy: %t", busy)
			}
		})
	}
}

// A slurmctld that takes long for an answer is asked less often.
func TestPollsOfASlowSlurmctld(t *testing.T) {
	f, _ := bare(t)
	f.c.o.PollBusy, f.c.o.PollIdle = time.Second, 2*time.Second
	if pause := f.c.pauseLocked(time.Second, nil); pause != 3*time.Second {
		t.Errorf("idle: %v", pause)
	}
	if pause := f.c.pauseLocked(10*time.Second, kb.ErrUnavailable); pause != 10*time.Second {
		t.Errorf("away: %v", pause)
	}
	f.c.records.nodes["n1"] = &kb.Node{Name: "n1", Pending: &kb.Pending{}}
	if pause := f.c.pauseLocked(900*time.Millisecond, nil); pause != 2700*time.Millisecond {
		t.Errorf("busy: %v", pause)
	}
	f.c.eager = time.Now()
	if pause := f.c.pauseLocked(900*time.Millisecond, nil); pause != 900*time.Millisecond {
		t.Errorf("while a node registers: %v", pause)
	}
}

// One slow poll, of a slurmctld that restarts, makes no long pause; three of them do.
func TestPollCost(t *testing.T) {
	var cost pollCost
	for i, c := range []struct{ took, want time.Duration }{
		{2 * time.Second, 2 * time.Second}, {50 * time.Millisecond, 50 * time.Millisecond}, {3 * time.Second, 50 * time.Millisecond},
		{4 * time.Second, 50 * time.Millisecond}, {5 * time.Second, 3 * time.Second},
	} {
		if got := cost.of(c.took); got != c.want {
			t.Errorf("poll %d took %v: costs %v, want %v", i, c.took, got, c.want)
		}
	}
}
