// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"reflect"
	"slices"
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

// times has something done with every time of a record, by its name.
func times(v reflect.Value, name string, do func(name string, at *time.Time)) {
	if at, is := v.Addr().Interface().(*time.Time); is {
		do(name, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		times(v.Elem(), name, do)
	case reflect.Struct:
		for i := range v.NumField() {
			times(v.Field(i), name+"."+v.Type().Field(i).Name, do)
		}
	}
}

// No time of a record that decisions hang on stays in the future, whichever it is.
func TestNoTimeOfARecordStaysAhead(t *testing.T) {
	now := time.Now()
	limits := plan.Defaults()
	far := now.Add(48 * time.Hour)
	most := now.Add(max(limits.RegisterDelay, limits.KeepLimit, plan.RetryPause))
	// Nothing is decided by these; and when a drain ends is an administrator's own word, of the future.
	shown := []string{"node.Boot.BootedAt", "node.Failure.At", "node.Slurm.Restore.Until", "node.Slurm.Service.Until"}
	n, a := &kb.Node{Name: "n1"}, &kb.Allocation{ID: kb.JobID{Job: 7}}
	all := map[string]reflect.Value{"node": reflect.ValueOf(n).Elem(), "allocation": reflect.ValueOf(a).Elem()}
	set := 0
	for name, v := range all {
		times(v, name, func(_ string, at *time.Time) { *at = far; set++ })
	}
	r := &records{nodes: map[string]*kb.Node{"n1": n}, allocs: map[kb.JobID]*kb.Allocation{a.ID: a}}
	r.rebase(now, limits)
	for name, v := range all {
		times(v, name, func(name string, at *time.Time) {
			if at.After(most) && !slices.Contains(shown, name) {
				t.Errorf("%s is %v ahead", name, at.Sub(now))
			}
		})
	}
	if set < 15 {
		t.Errorf("only %d times found", set)
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
		move(&n.Slurm.Awaited.Since, &n.KeptUntil, &n.RetryAt)
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

// A broker that was stopped, or whose host had no time for it, blames no node for what it did not hear meanwhile.
func TestABrokerThatStoodStill(t *testing.T) {
	f, _ := bare(t)
	began := f.c.clock.began
	now := began.Add(time.Hour)
	f.c.noteStallLocked(now)
	f.c.noteStallLocked(now.Add(mostStall))
	if got := f.c.beganLocked(); !got.Equal(began) {
		t.Errorf("it kept up, and limits count from %v", got.Sub(began))
	}
	now = now.Add(2*mostStall + time.Millisecond)
	f.c.noteStallLocked(now)
	if in := f.c.inputLocked(now, plan.NewScope()); !in.Began.Equal(now) {
		t.Errorf("limits count from %v before", now.Sub(in.Began))
	}
}
