// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// bare is a controller that is not run: its executor does what a test says.
func bare(t *testing.T) (*fixture, *executor) {
	t.Helper()
	f := newFixture(t)
	c, err := New(t.Context(), Options{Store: f.store, Catalog: f.catalog, Slurm: f.slurm, Reset: f, QuarantineAfter: 2, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f.c = c
	return f, c.actions
}

// drain does what waits, one after another.
func (e *executor) drain(t *testing.T) int {
	t.Helper()
	for done := 0; ; done++ {
		a, ok := e.take(t.Context())
		if !ok {
			return done
		}
		e.do(t.Context(), a)
	}
}

func TestActionsAreDone(t *testing.T) {
	f, e := bare(t)
	var resets []string
	f.reset = func(node string) error { resets = append(resets, node); return nil }
	id := kb.JobID{Job: 7}
	for _, c := range []struct {
		action plan.Action
		call   string
	}{
		{plan.Action{Kind: plan.ArmReturn, Nodes: []string{"n1", "n2"}, Text: "kprof: x"}, "arm n1,n2"},
		{plan.Action{Kind: plan.Disarm, Nodes: []string{"n1"}}, "disarm n1"},
		{plan.Action{Kind: plan.DrainNode, Node: "n1", Text: "kernel-broker: x"}, "drain n1 kernel-broker: x"},
		{plan.Action{Kind: plan.DownNode, Node: "n1", Text: "kprof: x"}, "down n1 kprof: x"},
		{plan.Action{Kind: plan.LabelNodes, Nodes: []string{"n1", "n2"}, Text: "kprof: x"}, "label n1,n2 kprof: x"},
		{plan.Action{Kind: plan.ResumeNode, Node: "n1", Text: "its return is over"}, "resume n1"},
		{plan.Action{Kind: plan.SettleBoot, Node: "n1", Text: "kprof: x"}, "settle n1 kprof: x"},
		{plan.Action{Kind: plan.RestoreState, Node: "n1", Text: "smoke", State: kb.StateDown}, "say again n1 smoke down"},
		{plan.Action{Kind: plan.HoldJob, Job: id, Reference: "7", Text: "why"}, "hold 7"},
		{plan.Action{Kind: plan.RequeueJob, Job: id, Reference: "7"}, "requeue 7"},
		{plan.Action{Kind: plan.CancelJob, Job: id, Reference: "7"}, "cancel 7"},
		{plan.Action{Kind: plan.CommentJob, Job: id, Reference: "7", Text: "words"}, "comment 7 words"},
		{plan.Action{Kind: plan.RestoreNoRequeue, Job: id, Reference: "7"}, "norequeue 7"},
		{plan.Action{Kind: plan.ReserveNodes, Nodes: []string{"n1"}, Reference: "9_3", User: "alice", Text: "kernel-broker-9_3"}, "reserve kernel-broker-9_3 9_3 alice n1"},
		{plan.Action{Kind: plan.DropReservation, Text: "kernel-broker-9_3"}, "drop kernel-broker-9_3"},
	} {
		if err := e.perform(t.Context(), c.action); err != nil || f.slurm.seen(c.call) != 1 {
			t.Errorf("%s: %v, calls %q", c.action.Kind, err, f.slurm.calls)
		}
	}
	f.c.records.nodes["n2"] = &kb.Node{Name: "n2", Pending: &kb.Pending{Progress: kb.ProgressReset, Token: "t"}}
	if err := e.perform(t.Context(), plan.Action{Kind: plan.ResetNode, Node: "n2", Token: "t"}); err != nil || len(resets) != 1 || resets[0] != "n2" {
		t.Errorf("reset: %v, %v", err, resets)
	}
	if r := f.c.receipts; len(r) != 4 || r[2].Action.Text != "words" || r[3].Action.Token != "t" {
		t.Errorf("receipts %+v", r)
	}
	if err := e.perform(t.Context(), plan.Action{Kind: plan.ResetNode, Node: "n2", Token: "t"}); err != nil || len(resets) != 1 {
		t.Errorf("a reset whose receipt is not on record yet was done again: %v, %v", err, resets)
	}
	if err := e.perform(t.Context(), plan.Action{Kind: "dance"}); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("an unknown action: %v", err)
	}
}

// An administrator drains a node between the poll and the command: the command does not overwrite the drain, and the
// next pass decides with it. A label of the broker's own is no reason to wait.
func TestOvertakenActionsAreDropped(t *testing.T) {
	seen := kb.SlurmNode{Name: "n1", State: "ALLOCATED", Flags: []string{"DRAIN", "REBOOT_REQUESTED"}, Reason: "kprof: x", By: "slurm@1"}
	for reason, want := range map[string]int{"bad DIMM": 0, "kprof: y": 1, "kprof: x": 1, "": 1} {
		f, e := bare(t)
		now := seen
		now.Reason, now.By = reason, "root@2"
		f.slurm.nodes["n1"] = now
		e.submit(plan.Action{Kind: plan.Disarm, Nodes: []string{"n1"}, Seen: []kb.SlurmNode{seen}})
		e.drain(t)
		if done := f.slurm.seen("disarm n1"); done != want {
			t.Errorf("reason %q: disarmed %d times, want %d", reason, done, want)
		}
		if kept := f.slurm.nodes["n1"].Reason; want == 0 && kept != reason {
			t.Errorf("reason %q became %q", reason, kept)
		}
		if want == 0 {
			e.submit(plan.Action{Kind: plan.Disarm, Nodes: []string{"n1"}, Seen: []kb.SlurmNode{now}})
			if e.drain(t) != 1 || f.slurm.seen("disarm n1") != 1 {
				t.Error("the next pass's action waits")
			}
		}
	}
}

// What failed is not taken for done.
func TestFailedActionsAreNotRemembered(t *testing.T) {
	f, e := bare(t)
	id := kb.JobID{Job: 7}
	f.slurm.refuse["comment"], f.slurm.refuse["norequeue"] = 1, 1
	for _, kind := range []plan.Kind{plan.CommentJob, plan.RestoreNoRequeue} {
		if err := e.perform(t.Context(), plan.Action{Kind: kind, Job: id, Reference: "7", Text: "words"}); err == nil {
			t.Errorf("%s: no error", kind)
		}
	}
	fault := kb.Fault{Token: "t", Ref: kb.Ref{Profile: "nobody", Version: 1}}
	if err := e.perform(t.Context(), plan.Action{Kind: plan.CountFault, Fault: fault}); err == nil {
		t.Error("a fault of an unknown kernel was counted")
	}
	if len(f.c.receipts)+len(f.c.counted) > 0 {
		t.Errorf("receipts %v, counted %v", f.c.receipts, f.c.counted)
	}
}

func TestSameActionIsNotQueuedTwice(t *testing.T) {
	f, e := bare(t)
	hold := plan.Action{Kind: plan.HoldJob, Job: kb.JobID{Job: 7}, Reference: "7"}
	for range 5 {
		e.submit(hold)
	}
	e.submit(plan.Action{Kind: plan.HoldJob, Job: kb.JobID{Job: 8}, Reference: "8"})
	if done := e.drain(t); done != 2 || f.slurm.seen("hold 7") != 1 {
		t.Errorf("%d done: %q", done, f.slurm.calls)
	}
	e.submit(hold) // asked for again before its effect can be seen
	if done := e.drain(t); done != 0 {
		t.Errorf("%d done at once again", done)
	}
	e.again[hold.Key()] = time.Now()
	e.submit(hold)
	if done := e.drain(t); done != 1 {
		t.Errorf("%d done later", done)
	}
}

func TestBackoff(t *testing.T) {
	f, e := bare(t)
	f.slurm.refuse["hold 7"] = 100
	hold := plan.Action{Kind: plan.HoldJob, Job: kb.JobID{Job: 7}, Reference: "7"}
	last := time.Duration(0)
	for try := range 8 {
		e.again[hold.Key()] = time.Time{}
		e.submit(hold)
		if done := e.drain(t); done != 1 {
			t.Fatalf("%d done", done)
		}
		pause := time.Until(e.again[hold.Key()])
		if pause < last-time.Second || pause > maxBackoff || try < 4 && pause <= last {
			t.Errorf("pause %v after try %d, %v before", pause, try+1, last)
		}
		last = pause
	}
	f.slurm.refuse["hold 7"] = 0
	e.again[hold.Key()] = time.Time{}
	e.submit(hold)
	e.drain(t)
	if pause := time.Until(e.again[hold.Key()]); pause > quietTime || e.failed[hold.Key()] != 0 {
		t.Errorf("pause %v after it worked", pause)
	}
}

// What failed long ago is forgotten, and makes no pause longer. A failure of a moment ago is not.
func TestOldFailuresAreForgotten(t *testing.T) {
	f, e := bare(t)
	f.slurm.refuse["hold"] = 100
	old := plan.Action{Kind: plan.HoldJob, Job: kb.JobID{Job: 7}, Reference: "7"}
	late := plan.Action{Kind: plan.HoldJob, Job: kb.JobID{Job: 8}, Reference: "8"}
	for range 4 {
		for _, a := range []plan.Action{old, late} {
			delete(e.again, a.Key())
			e.submit(a)
		}
		e.drain(t)
	}
	e.again[old.Key()] = time.Now().Add(-2 * time.Minute)
	e.submit(plan.Action{Kind: plan.CommentJob, Reference: "9", Text: "words"})
	e.drain(t)
	if _, has := e.again[old.Key()]; has || e.failed[old.Key()] != 0 || e.failed[late.Key()] != 4 {
		t.Errorf("failed %v, again %v", e.failed, e.again)
	}
}

// A full queue drops what comes, and forgets nothing that it dropped.
func TestFullQueue(t *testing.T) {
	f, e := bare(t)
	for i := range maxQueue + 10 {
		e.submit(plan.Action{Kind: plan.HoldJob, Job: kb.JobID{Job: uint32(i + 1)}, Reference: fmt.Sprint(i + 1)})
	}
	if done := e.drain(t); done != maxQueue {
		t.Errorf("%d done", done)
	}
	last := plan.Action{Kind: plan.HoldJob, Job: kb.JobID{Job: maxQueue + 5}, Reference: fmt.Sprint(maxQueue + 5)}
	e.submit(last)
	if done := e.drain(t); done != 1 || f.slurm.seen("hold "+last.Reference) != 1 {
		t.Errorf("%d done: what was dropped cannot be asked for again", done)
	}
}

func TestLanes(t *testing.T) {
	for _, c := range []struct {
		action plan.Action
		want   []string
	}{
		{plan.Action{Kind: plan.ArmReturn, Nodes: []string{"n1", "n2"}, Text: "kprof: x"}, []string{"node n1", "node n2"}},
		{plan.Action{Kind: plan.DrainNode, Node: "n1"}, []string{"node n1"}},
		{plan.Action{Kind: plan.CommentJob, Reference: "7_1"}, []string{"job 7_1"}},
		{plan.Action{Kind: plan.ReserveNodes, Nodes: []string{"n1"}, Reference: "9", Text: "kernel-broker-9"}, []string{"node n1", "job 9"}},
		{plan.Action{Kind: plan.DropReservation, Text: "kernel-broker-9"}, []string{"job 9"}},
		{plan.Action{Kind: plan.ResetNode, Node: "n1"}, []string{"reset n1"}},
	} {
		if got := lanes(c.action); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.action.Kind, got)
		}
	}
}

// What touches one node, or one job, is done in the order it was asked for,
// and the rest goes past it.
func TestOrder(t *testing.T) {
	_, e := bare(t)
	for _, a := range []plan.Action{
		{Kind: plan.Disarm, Nodes: []string{"n1"}},
		{Kind: plan.DrainNode, Node: "n1", Text: "x"},
		{Kind: plan.ArmReturn, Nodes: []string{"n1", "n2"}, Text: "kprof: x"},
		{Kind: plan.DrainNode, Node: "n2", Text: "x"},
		{Kind: plan.CommentJob, Reference: "7"},
		{Kind: plan.HoldJob, Reference: "7"},
		{Kind: plan.ResetNode, Node: "n1", Token: "t"},
	} {
		e.submit(a)
	}
	take := func() (begun []plan.Action) {
		for a, ok := e.take(t.Context()); ok; a, ok = e.take(t.Context()) {
			begun = append(begun, a)
		}
		return begun
	}
	kinds := func(list []plan.Action) (kinds []plan.Kind) {
		for _, a := range list {
			kinds = append(kinds, a.Kind)
		}
		return kinds
	}
	first := take()
	if want := []plan.Kind{plan.Disarm, plan.CommentJob, plan.ResetNode}; !slices.Equal(kinds(first), want) {
		t.Fatalf("at once: %v", kinds(first))
	}
	e.release(first[0])
	second := take()
	if want := []plan.Kind{plan.DrainNode}; !slices.Equal(kinds(second), want) || second[0].Node != "n1" {
		t.Fatalf("then: %+v", second)
	}
	e.release(second[0])
	e.release(first[1])
	third := take()
	if want := []plan.Kind{plan.ArmReturn, plan.HoldJob}; !slices.Equal(kinds(third), want) {
		t.Fatalf("then: %v", kinds(third))
	}
	e.release(third[0])
	if last := take(); len(last) != 1 || last[0].Node != "n2" {
		t.Fatalf("last: %+v", last)
	}
}

// However many resets hang, arming goes on; and no more of them are under way
// than there may be.
func TestResetsDelayNothing(t *testing.T) {
	f := newFixture(t)
	begun := make(chan string, 100)
	end := make(chan struct{})
	f.reset = func(node string) error { begun <- node; <-end; return nil }
	f.start()
	f.c.mu.Lock()
	for i := range 20 {
		name := fmt.Sprintf("m%d", i)
		f.c.records.nodes[name] = &kb.Node{Name: name, Pending: &kb.Pending{Progress: kb.ProgressReset, Token: name, Since: time.Now()}}
		f.c.actions.submit(plan.Action{Kind: plan.ResetNode, Node: name, Token: name, Text: "silent after its kexec"})
	}
	f.c.actions.submit(plan.Action{Kind: plan.ArmReturn, Nodes: []string{"n1", "m1"}, Text: "kprof: x"})
	f.c.mu.Unlock()
	until(t, "the return is armed", func() bool { return f.slurm.seen("arm n1,m1") == 1 })
	until(t, "resets", func() bool { return len(begun) == maxWorkers[resets] })
	f.c.mu.Lock()
	if busy := f.c.actions.workers[resets]; busy != maxWorkers[resets] || !f.c.actions.underWay() {
		t.Errorf("%d resets under way", busy)
	}
	f.c.mu.Unlock()
	close(end)
	until(t, "all resets", func() bool { return len(begun) >= 20 })
}

// A broker that ends begins nothing more: what waited for an action that the
// end broke off keeps waiting, for the next broker.
func TestShutdownBeginsNothing(t *testing.T) {
	_, e := bare(t)
	for _, token := range []string{"t", "u"} {
		e.submit(plan.Action{Kind: plan.ResetNode, Node: "n1", Token: token})
	}
	ctx, end := context.WithCancel(t.Context())
	first, ok := e.take(ctx)
	if !ok || first.Token != "t" {
		t.Fatalf("first: %+v, %v", first, ok)
	}
	end()
	e.release(first)
	if a, ok := e.take(ctx); ok || len(e.queue) != 1 {
		t.Errorf("after the end: %+v begun, %d waiting", a, len(e.queue))
	}
}

// A broker that ends waits for what it has begun: no worker outlives it.
func TestShutdownWaitsForWorkers(t *testing.T) {
	f := newFixture(t)
	begun := make(chan struct{})
	f.hang = func(ctx context.Context) error { close(begun); <-ctx.Done(); return ctx.Err() }
	f.start()
	f.c.mu.Lock()
	f.c.records.nodes["n1"] = &kb.Node{Name: "n1", Pending: &kb.Pending{Progress: kb.ProgressReset, Token: "t", Since: time.Now()}}
	f.c.actions.submit(plan.Action{Kind: plan.ResetNode, Node: "n1", Token: "t", Text: "silent after its kexec"})
	f.c.mu.Unlock()
	<-begun
	f.stop()
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.c.actions.workers != [classes]int{} || len(f.c.actions.busy) > 0 || len(f.c.receipts) > 0 {
		t.Errorf("after the end: workers %v, busy %v, receipts %v", f.c.actions.workers, f.c.actions.busy, f.c.receipts)
	}
}
