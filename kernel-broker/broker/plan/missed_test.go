// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Where Slurm never waits for a boot a job is not tried without end. What its runs ended for otherwise does not count.
func TestBootsThatSlurmMisses(t *testing.T) {
	for _, c := range []struct {
		restart, before uint32
		hold            bool
	}{
		{0, 0, false}, {9, 0, false}, {9, maxMissed - 1, false}, {maxMissed, maxMissed, true},
	} {
		w := steadyOnStock(t, "n1")
		w.slurm.Jobs[7] = kb.SlurmJob{ID: 7, Restart: c.restart}
		w.job(7, "CONFIGURING", true, "n1")
		w.node("n1", "ALLOCATED", "")
		a := w.ensure(7, mit, "n1")
		a.Missed = c.before
		w.settle()
		a = w.allocs[a.ID]
		if a.Phase != kb.PhaseFailed || a.Hold != c.hold || a.Missed != c.before+1 {
			t.Errorf("restart %d after %d: %s, hold %v, missed %d: %s", c.restart, c.before, a.Phase, a.Hold, a.Missed, a.Reason)
		}
	}
	if a := running(t).allocs[kb.JobID{Job: 7}]; a.Missed != 0 {
		t.Errorf("a run that began counts as missed")
	}
}

// A kernel is loaded at once, and booted when Slurm was seen since the job got the node. A job whose wait has ended by
// then is tried again without a boot. A slurmctld that does not answer holds up no switch.
func TestNoBootBeforeSlurmWasSeen(t *testing.T) {
	begun := func(t *testing.T) *world {
		w := steadyOnStock(t, "n1")
		w.unanswered = true
		w.job(7, "CONFIGURING", true, "n1")
		w.ensure(7, mit, "n1")
		w.settle()
		w.report("n1", kb.ProgressLoaded, "", "")
		w.settle()
		if p := w.nodes["n1"].Pending; p == nil || !p.LoadOnly || p.Kernel.Ref() != mit {
			t.Fatalf("before Slurm was seen: %+v", p)
		}
		return w
	}
	w := begun(t)
	generation := w.nodes["n1"].Generation
	w.unanswered = false
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.settle()
	if n := w.nodes["n1"]; n.Pending == nil || n.Pending.LoadOnly || n.Generation == generation {
		t.Errorf("Slurm waits: %+v, generation %d after %d", n.Pending, n.Generation, generation)
	}

	w = begun(t)
	w.unanswered = false
	w.node("n1", "ALLOCATED", "")
	w.settle()
	if n, a := w.nodes["n1"], w.allocs[kb.JobID{Job: 7}]; n.Pending != nil || !n.Steady() || a.Phase != kb.PhaseFailed || a.Hold {
		t.Errorf("Slurm does not wait: %+v, %s, hold %v", n.Pending, a.Phase, a.Hold)
	}

	w = begun(t)
	w.pass(unseenLimit)
	if p := w.nodes["n1"].Pending; p == nil || p.LoadOnly {
		t.Errorf("Slurm does not answer: %+v", p)
	}
}
