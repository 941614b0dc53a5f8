// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// The clock goes on as time passes, whatever the host's clock is set to.
func TestClockGoesByWhatHasPassed(t *testing.T) {
	passed := time.Duration(0)
	c := NewClock()
	c.since = func() time.Duration { return passed }
	begin := c.Now()
	for _, step := range []time.Duration{0, time.Nanosecond, time.Hour} {
		passed += step
		if got := c.Now().Sub(begin); got != passed {
			t.Errorf("%v after the begin it shows %v", passed, got)
		}
	}
	if now := NewClock().Now(); now != now.Round(0) || time.Since(now).Abs() > time.Minute {
		t.Errorf("a new clock shows %v", now)
	}
}

// shift sets the clock by which the records in the store were dated.
func (f *fixture) shift(by time.Duration) {
	f.t.Helper()
	r := records{store: f.store}
	if err := r.load(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	move := func(times ...*time.Time) {
		for _, at := range times {
			if !at.IsZero() {
				*at = at.Add(by)
			}
		}
	}
	var nodes []*kb.Node
	for _, n := range r.nodes {
		move(&n.SlurmdNotBefore, &n.KeptUntil, &n.RetryAt)
		if n.Pending != nil {
			move(&n.Pending.Since, &n.Pending.ResetAt)
		}
		nodes = append(nodes, n)
	}
	var allocs []*kb.Allocation
	for _, a := range r.allocs {
		move(&a.Created, &a.Since, &a.Ended)
		allocs = append(allocs, a)
	}
	if err := r.commit(f.t.Context(), nodes, allocs); err != nil {
		f.t.Fatal(err)
	}
}

// A clock that was set while the broker was away resets no node, fails no job and
// puts off no return.
func TestClockSetWhileTheBrokerWasAway(t *testing.T) {
	for _, by := range []time.Duration{-48 * time.Hour, -time.Hour, -time.Second, time.Second, time.Hour, 48 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			f, agent, d := begun(t)
			resets := make(chan string, 10)
			f.reset = func(node string) error { resets <- node; return nil }
			agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
			until(t, "booting", func() bool { p := f.pending("n1"); return p != nil && p.Progress == kb.ProgressBooting })
			again := func() {
				f.stop()
				f.shift(by)
				f.start()
			}
			again()
			time.Sleep(50 * time.Millisecond)
			if p := f.pending("n1"); p == nil || p.Progress != kb.ProgressBooting || len(resets) > 0 {
				t.Fatalf("%+v, %d resets", p, len(resets))
			}
			f.attach("n1", "mitgcm", d.Token, bootTwo)
			f.slurm.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@1 for job 7")
			until(t, "ready", func() bool { return f.phase(7) == kb.PhaseReady })
			again()
			last := f.attach("n1", "mitgcm", d.Token, bootTwo)
			f.slurm.end(7)
			f.slurm.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@1 for job 7 : reboot issued")
			begin := time.Now()
			last.wished(t, "stock", func(d kb.DesiredState) bool { return d.Kernel != nil && d.Kernel.Ref().IsStock() })
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("the return began after %v", took)
			}
			again()
			stock := f.attach("n1", kb.StockProfile, "", "33333333-3333-3333-3333-333333333333")
			stock.wished(t, "slurmd", func(d kb.DesiredState) bool { return d.SlurmdAllowed && d.SlurmdWait <= plan.Defaults().RegisterDelay })
			if len(resets) > 0 || f.slurm.seen("drain") > 0 || f.slurm.seen("requeue") > 0 {
				t.Errorf("%d resets, calls %q", len(resets), f.slurm.calls)
			}
		})
	}
}
