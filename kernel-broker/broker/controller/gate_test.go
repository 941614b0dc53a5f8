// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// drainedForAProlog is a controller with a node that slurmctld drained in this
// second, on a site with a Prolog of its own or without.
func drainedForAProlog(t *testing.T, prolog bool) (*fixture, *fakeAgent, string) {
	t.Helper()
	f := newFixture(t)
	f.slurm.prolog = prolog
	f.start()
	a := f.attach("n1", "stock", "", fmt.Sprintf("boot-of-%s-0001", "n1"))
	a.wished(t, "stock", func(d kb.DesiredState) bool { return d.SlurmdAllowed })
	a.Slurmd(kb.SlurmdReport{Start: 1, Running: true})
	by := "slurm@" + time.Now().Format("2006-01-02T15:04:05")
	f.slurm.mu.Lock()
	defer f.slurm.mu.Unlock()
	f.slurm.nodes["n1"] = kb.SlurmNode{Name: "n1", State: "IDLE", Flags: []string{"DRAIN"}, Reason: kb.ReasonProlog, By: by}
	return f, a, by
}

// The agent's word on what the gate refused has the drain undone, once.
func TestGatesDrainIsUndoneOnTheAgentsWord(t *testing.T) {
	f, a, by := drainedForAProlog(t, false)
	time.Sleep(50 * time.Millisecond)
	if f.slurm.seen("undo n1 "+by) != 0 {
		t.Fatal("undone before the agent said anything")
	}
	a.Slurmd(kb.SlurmdReport{Start: 1, Running: true, Refusals: []kb.GateRefusal{{Job: 7, At: time.Now(), Cause: "words"}}})
	until(t, "the drain's end", func() bool { return f.slurm.seen("undo n1 "+by) == 1 })
	until(t, "the record's end", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		return f.c.records.nodes["n1"].Slurm.Service.Author != kb.AuthorGate
	})
	if !f.log.has("gate refused a job") {
		t.Error("not logged")
	}
}

// slurmctld shows the drain only when the node has gone down for a boot: what its
// agent said before explains it all the same.
func TestGatesWordOutlastsTheAgent(t *testing.T) {
	f := newFixture(t)
	f.start()
	a := f.attach("n1", "stock", "", "boot-of-n1-0001")
	a.wished(t, "stock", func(d kb.DesiredState) bool { return d.SlurmdAllowed })
	a.Slurmd(kb.SlurmdReport{Generation: 3, Start: 1, Running: true, Refusals: []kb.GateRefusal{{Job: 7, At: time.Now(), Cause: "words"}}})
	f.c.mu.Lock()
	told := a.agent.Acknowledged
	f.c.mu.Unlock()
	if told != 3 {
		t.Errorf("the gate goes by generation %d, want 3", told)
	}
	a.Detach()
	b := f.attach("n1", "stock", "", "boot-of-n1-0002") // whose gate has refused nothing
	b.Slurmd(kb.SlurmdReport{Generation: 4, Start: 1, Running: true})
	by := "slurm@" + time.Now().Format("2006-01-02T15:04:05")
	f.slurm.mu.Lock()
	f.slurm.nodes["n1"] = kb.SlurmNode{Name: "n1", State: "IDLE", Flags: []string{"DRAIN"}, Reason: kb.ReasonProlog, By: by}
	f.slurm.mu.Unlock()
	until(t, "the gate's drain to be undone", func() bool { return f.slurm.seen("undo n1 "+by) == 1 })
}

// What may be the site's own Prolog's drain is asked for once, and stays.
func TestGatesDrainStaysBesideASitesProlog(t *testing.T) {
	f, a, by := drainedForAProlog(t, true)
	a.Slurmd(kb.SlurmdReport{Start: 1, Running: true, Refusals: []kb.GateRefusal{{Job: 7, At: time.Now(), Cause: "words"}}})
	until(t, "the question", func() bool { return f.slurm.seen("undo n1 "+by) == 1 })
	time.Sleep(2 * quietTime)
	if n := f.slurm.seen("undo n1 " + by); n != 1 {
		t.Errorf("asked %d times", n)
	}
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if s := f.c.view.Nodes["n1"]; !s.Drained() || f.c.records.nodes["n1"].Slurm.Service.Author != kb.AuthorProlog {
		t.Errorf("node %+v, left %v", s, f.c.records.nodes["n1"].Slurm)
	}
}

func TestUndoGateAction(t *testing.T) {
	f, e := bare(t)
	action := plan.Action{Kind: plan.UndoGate, Node: "n1", By: "slurm@x"}
	if err := e.perform(t.Context(), action); err != nil || f.slurm.seen("undo n1 slurm@x") != 1 || len(f.c.receipts) != 0 {
		t.Errorf("%v, calls %q, left %v", err, f.slurm.calls, f.c.records.nodes["n1"].Slurm)
	}
	f.slurm.refuse["undo"] = 1
	if err := e.perform(t.Context(), action); err == nil || len(f.c.receipts) != 0 {
		t.Errorf("a command that failed: %v, left %v", err, f.c.receipts)
	}
}
