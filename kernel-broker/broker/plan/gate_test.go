// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// drainedAt is a node that slurmctld drained for a failed prolog, after.
func (w *world) drainedAt(node, state string, at time.Time) {
	w.node(node, state, kb.ReasonProlog)
	n := w.slurm.Nodes[node]
	n.By = "slurm@" + at.In(time.Local).Format("2006-01-02T15:04:05")
	w.slurm.Nodes[node] = n
}

func (w *world) refused(node string, refusals ...kb.GateRefusal) {
	a := w.agents[node]
	a.Refusals = refusals
	w.agents[node] = a
}

func refusal(job uint32, at time.Time) kb.GateRefusal {
	return kb.GateRefusal{Job: job, At: at, Cause: "the node has not gone back to stock"}
}

func undone(out Output) int {
	count := 0
	for _, a := range out.Actions {
		if a.Kind == UndoGate {
			count++
		}
	}
	return count
}

// The drain that follows the gate's refusal of a job is undone, and no other.
func TestGatesDrainIsUndone(t *testing.T) {
	at := noon.Add(time.Hour)
	one := []kb.GateRefusal{refusal(7, at)}
	for _, c := range []struct {
		name     string
		state    string
		reason   string
		refusals []kb.GateRefusal
		after    time.Duration
		undone   bool
	}{
		{"in the same second", "IDLE+DRAIN", "", one, 0, true},
		{"clocks that differ a little", "IDLE+DRAIN", "", one, -4 * time.Second, true},
		{"slurmctld was away for a moment", "IDLE+DRAIN", "", one, 50 * time.Second, true},
		{"long after", "IDLE+DRAIN", "", one, 2 * time.Minute, false},
		{"before", "IDLE+DRAIN", "", one, -time.Minute, false},
		{"no refusal: the site's own prolog", "IDLE+DRAIN", "", nil, 0, false},
		{"an administrator's reason", "IDLE+DRAIN", "bad DIMM", one, 0, false},
		{"an administrator's, who begins as slurmctld", "IDLE+DRAIN", "Prolog error on n1, do not use", one, 0, false},
		{"its jobs still end", "ALLOCATED+DRAIN", "", one, 0, false},
		{"its epilog still runs", "IDLE+DRAIN+COMPLETING", "", one, 0, false},
		{"down", "DOWN+DRAIN", "", one, 0, false},
		{"Slurm boots it", "DOWN+DRAIN+REBOOT_ISSUED", "", one, 0, false},
		{"Slurm is about to boot it", "IDLE+DRAIN+REBOOT_REQUESTED", "", one, 0, false},
		{"Slurm forgot the boot for the job", "IDLE+DRAIN+REBOOT_ISSUED", "", one, 0, true},
		{"one of several that were refused together", "IDLE+DRAIN", "",
			[]kb.GateRefusal{refusal(7, at), refusal(8, at), refusal(9, at), refusal(10, at), refusal(11, at.Add(time.Second))}, time.Second, true},
		{"the third time", "IDLE+DRAIN", "",
			[]kb.GateRefusal{refusal(7, at.Add(-4*time.Minute)), refusal(7, at.Add(-2*time.Minute)), refusal(7, at)}, 0, true},
		{"the fourth time in ten minutes", "IDLE+DRAIN", "",
			[]kb.GateRefusal{refusal(7, at.Add(-6*time.Minute)), refusal(7, at.Add(-4*time.Minute)), refusal(7, at.Add(-2*time.Minute)), refusal(7, at)}, 0, false},
		{"often, and long ago", "IDLE+DRAIN", "",
			[]kb.GateRefusal{refusal(7, noon), refusal(7, noon.Add(time.Minute)), refusal(7, noon.Add(2*time.Minute)), refusal(7, noon.Add(3*time.Minute)), refusal(7, at)}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := steadyOnStock(t, "n1")
			w.now = at.Add(time.Hour) // what the broker's clock says does not matter
			w.refused("n1", c.refusals...)
			w.drainedAt("n1", c.state, at.Add(c.after))
			if c.reason != "" {
				n := w.slurm.Nodes["n1"]
				n.Reason = c.reason
				w.slurm.Nodes["n1"] = n
			}
			if got := undone(w.decide()); (got == 1) != c.undone || got > 1 {
				t.Errorf("%d drains undone", got)
			}
		})
	}
}

// A reason that nobody knows the time of is no drain of the gate's.
func TestGatesDrainOfAnUnknownTime(t *testing.T) {
	for _, by := range []string{"", "slurm", "slurm@yesterday"} {
		w := steadyOnStock(t, "n1")
		w.refused("n1", refusal(7, w.now))
		w.drainedAt("n1", "IDLE+DRAIN", w.now)
		n := w.slurm.Nodes["n1"]
		n.By = by
		w.slurm.Nodes["n1"] = n
		if undone(w.decide()) != 0 {
			t.Errorf("drain of %q undone", by)
		}
	}
}

// The node forgets its refusals when it goes back to stock, the broker does not.
func TestGatesDrainOutlastsTheBoot(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.boot("n1", kernels[1], "")
	w.settle()
	w.refused("n1", refusal(7, w.now))
	w.drainedAt("n1", "IDLE+DRAIN", w.now)
	by := w.slurm.Nodes["n1"].By
	if out := w.decide(); undone(out) != 0 || w.nodes["n1"].Slurm.Service.Author != kb.AuthorGate {
		t.Fatalf("on another kernel than stock: actions %v, record %+v", out.Actions, w.nodes["n1"].Slurm.Service)
	}
	w.boot("n1", kernels[0], "")
	w.refused("n1")
	w.drainedAt("n1", "UNKNOWN+DRAIN", w.now) // slurmctld restarted
	w.settle()
	if out := w.decide(); undone(out) != 0 || w.nodes["n1"].Slurm.Service.Author != kb.AuthorGate || w.nodes["n1"].Slurm.Restore != nil {
		t.Fatalf("before slurmd answers: actions %v, record %+v, said %+v", out.Actions, w.nodes["n1"].Slurm.Service, w.nodes["n1"].Slurm.Restore)
	}
	w.drainedAt("n1", "IDLE+DRAIN", w.now)
	w.settle()
	out := w.decide()
	if undone(out) != 1 || w.nodes["n1"].Slurm.Service.Author != kb.AuthorGate {
		t.Fatalf("back on stock: actions %v, record %+v", out.Actions, w.nodes["n1"].Slurm.Service)
	}
	i := slices.IndexFunc(out.Actions, func(a Action) bool { return a.Kind == UndoGate })
	if a := out.Actions[i]; a.Node != "n1" || a.By != by {
		t.Errorf("action %+v", a)
	}
	w.drainedAt("n1", "IDLE+DRAIN", w.now.Add(time.Second))
	if undone(w.decide()) != 0 || w.nodes["n1"].Slurm.Service.Author == kb.AuthorGate {
		t.Errorf("another drain of the same reason is taken for it")
	}
	w.node("n1", "IDLE", "")
	if undone(w.decide()) != 0 {
		t.Error("undone a second time")
	}
}

// What the site's own prolog may have brought about is not asked for again, and
// a node without an agent stays as it is.
func TestGatesDrainThatStays(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.refused("n1", refusal(7, w.now))
	w.drainedAt("n1", "IDLE+DRAIN", w.now)
	w.decide()
	stays := Action{Kind: UndoGate, Node: "n1", By: "slurm@2026-11-20T11:00:00"}
	w.receipts = []Receipt{{Action: stays, Refused: true}}
	if undone(w.decide()) != 1 {
		t.Error("an older drain stands in the way")
	}
	stays.By = w.slurm.Nodes["n1"].By
	w.receipts = []Receipt{{Action: stays, Refused: true}}
	for range 2 {
		if undone(w.decide()) != 0 {
			t.Error("asked for again")
		}
	}
	a := w.agents["n1"]
	a.Connected = false
	w.agents["n1"] = a
	if undone(w.decide()) != 0 {
		t.Error("undone without an agent")
	}
}

// The agent of a node that was just booting tells of the refusal after Slurm
// did: until then the drain is as anybody's, and then it is not said again.
func TestGatesDrainIsExplainedLate(t *testing.T) {
	at := noon.Add(time.Hour)
	w := running(t)
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7")
	w.settle()
	w.drainedAt("n1", "IDLE+DRAIN", at)
	w.decide()
	if w.nodes["n1"].Slurm.Restore == nil {
		t.Fatal("a drain that nothing explains is not taken for somebody's")
	}
	w.refused("n1", refusal(8, at))
	w.decide()
	if n := w.nodes["n1"]; n.Slurm.Restore != nil || n.Slurm.Service.Author != kb.AuthorGate {
		t.Errorf("said %+v, it is %+v", n.Slurm.Restore, n.Slurm.Service)
	}
}

// The gate refuses a plain job on a node whose armed boot Slurm begins right after
// (state=undrain lets the job get there): that boot ends the drain, which nobody
// said and nobody says again.
func TestGatesDrainBeforeTheArmedBoot(t *testing.T) {
	w := running(t)
	w.node("n1", "ALLOCATED+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.settle()
	w.pass(time.Second)
	delete(w.slurm.Jobs, 7)
	w.refused("n1", refusal(8, w.now))
	w.drainedAt("n1", "IDLE+DRAIN+REBOOT_REQUESTED", w.now)
	w.settle()
	w.pass(time.Second)
	w.refused("n1")
	w.drainedAt("n1", "DOWN+DRAIN+REBOOT_ISSUED", w.now)
	issued := w.slurm.Nodes["n1"]
	issued.Reason += " : reboot issued"
	w.slurm.Nodes["n1"] = issued
	w.settle()
	w.pass(time.Second)
	actions := home(w)
	w.pass(10 * time.Millisecond)
	if n := w.nodes["n1"]; n.Slurm.Restore != nil || slurmdHeld(n) || has(actions, RestoreState) || has(actions, UndoGate) {
		t.Errorf("said %+v, slurmd held %t, %v", n.Slurm.Restore, slurmdHeld(n), actions)
	}
}

// A node that runs the job's kernel already is ready only when its gate knows the
// job: slurmctld starts the job within milliseconds of that word.
func TestNotReadyBeforeTheGateKnowsTheJob(t *testing.T) {
	w := booting(t)
	w.unheard = map[string]bool{"n1": true}
	w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
	w.settle()
	w.slurmd("n1")
	w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.settle()
	a := w.allocs[kb.JobID{Job: 7}]
	if !w.nodes["n1"].Steady() || a.Phase != kb.PhaseSwitching {
		t.Fatalf("n1 is %s, the job %s", w.nodes["n1"].Progress(), a.Phase)
	}
	w.agents["n1"] = func(a Agent) Agent { a.Acknowledged = w.nodes["n1"].Generation - 1; return a }(w.agents["n1"])
	w.settle()
	if a := w.allocs[kb.JobID{Job: 7}]; a.Phase != kb.PhaseSwitching {
		t.Fatalf("ready by an older word: %s", a.Phase)
	}
	w.unheard = nil
	w.settle()
	w.settle()
	if a := w.allocs[kb.JobID{Job: 7}]; a.Phase != kb.PhaseReady {
		t.Errorf("the job is %s", a.Phase)
	}
}

// A refusal that the agent told before the node booted explains the drain that
// Slurm shows after: it is not an administrator's.
func TestGatesDrainIsKnownAfterTheAgentIsGone(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.job(7, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.ensure(7, mit, "n1")
	w.settle()
	w.report("n1", kb.ProgressBooting, "", "")
	w.settle()
	w.agents["n1"] = Agent{Since: w.now, Refusals: []kb.GateRefusal{refusal(7, w.now)}}
	w.drainedAt("n1", "IDLE+DRAIN", w.now)
	w.settle()
	if n := w.nodes["n1"]; n.Slurm.Restore != nil || n.Slurm.Service.Author != kb.AuthorGate {
		t.Errorf("out of service %+v, it is %+v", n.Slurm.Restore, n.Slurm.Service)
	}
}
