// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

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

// A kernel is loaded at once, and booted when Slurm was seen since the job got the node; where slurmd had just registered,
// when no answer of it is on its way any more. A job whose wait has ended by then is tried again without a boot. A
// slurmctld that does not answer holds up no switch.
func TestNoBootBeforeSlurmWasSeen(t *testing.T) {
	begun := func(t *testing.T, registered time.Duration) *world {
		w := steadyOnStock(t, "n1")
		w.slurmd("n1")
		w.pass(registered)
		a := w.agents["n1"]
		a.Slurmd = a.Slurmd.Said(a.Slurmd.Start, true, w.now) // as with each change of its desired state
		w.agents["n1"] = a
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
	seen := func(w *world, state string, later time.Duration) *kb.Node {
		w.unanswered = false
		w.node("n1", state, "")
		w.pass(later)
		return w.nodes["n1"]
	}
	long, just := sameSecond, sameSecond-2*time.Millisecond
	waits, ended := "ALLOCATED+POWERING_UP", "ALLOCATED"

	w := begun(t, long)
	generation := w.nodes["n1"].Generation
	if n := seen(w, waits, 0); n.Pending == nil || n.Pending.LoadOnly || n.Generation == generation {
		t.Errorf("Slurm waits: %+v, generation %d after %d", n.Pending, n.Generation, generation)
	}

	w = begun(t, just)
	if n := seen(w, waits, lateAnswer-2*time.Millisecond); n.Pending == nil || !n.Pending.LoadOnly {
		t.Errorf("an answer may be on its way: %+v", n.Pending)
	}
	if n := seen(w, waits, 2*time.Millisecond); n.Pending == nil || n.Pending.LoadOnly {
		t.Errorf("no answer is on its way: %+v", n.Pending)
	}

	for _, registered := range []time.Duration{long, just} {
		w = begun(t, registered)
		if n, a := seen(w, ended, 0), w.allocs[kb.JobID{Job: 7}]; n.Pending != nil || !n.Steady() || a.Phase != kb.PhaseFailed || a.Hold {
			t.Errorf("Slurm does not wait: %+v, %s, hold %v", n.Pending, a.Phase, a.Hold)
		}
	}

	// What the node was allowed to do it may have begun: while it boots its slurmd is reported to have ended, more than once.
	w = begun(t, long)
	seen(w, waits, 0)
	for range 2 {
		a := w.agents["n1"]
		a.Slurmd = a.Slurmd.Said(a.Slurmd.Start, false, w.now)
		w.agents["n1"] = a
		if w.pass(10 * time.Millisecond); w.nodes["n1"].Pending.LoadOnly {
			t.Error("a node that may boot may not any more")
		}
	}

	w = begun(t, just)
	w.pass(unseenLimit)
	if p := w.nodes["n1"].Pending; p == nil || p.LoadOnly {
		t.Errorf("Slurm does not answer: %+v", p)
	}
}

func TestSlurmdIsThereSince(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	s := Slurmd{}
	for second, c := range []struct {
		start   uint64
		running bool
		since   int64
	}{{0, true, 0}, {0, true, 0}, {0, false, 0}, {0, false, 0}, {0, true, 4}, {1, true, 5}, {1, false, 5}} {
		if s = s.Said(c.start, c.running, at(int64(second))); !s.Since.Equal(at(c.since)) || !s.At.Equal(at(int64(second))) {
			t.Errorf("report %d: %+v", second, s)
		}
	}
}
