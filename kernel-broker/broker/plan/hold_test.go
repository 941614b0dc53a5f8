// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A hold that slurmctld has made an administrator's is given back to the user,
// and looked after until it stays so.
func TestHoldsStayTheUsers(t *testing.T) {
	id := kb.JobID{Job: 7}
	queued := func(restart uint32, priority uint64, reason string) []kb.SlurmJob {
		return []kb.SlurmJob{{ID: 7, Reference: "7_3", Restart: restart, State: "PENDING", Priority: priority, Reason: reason}}
	}
	for _, c := range []struct {
		name  string
		queue []kb.SlurmJob
		given bool
	}{
		{"as it was held", queued(1, 0, "job requeued in held state"), false},
		{"given back", queued(1, 0, "JobHeldUser"), false},
		{"its prolog has yet to end", queued(1, 0, "Cleaning"), true},
		{"taken for an administrator's", queued(1, 0, "JobHeldAdmin"), true},
		{"held in its next run", queued(2, 0, "JobHeldAdmin"), true},
		{"held before this run", queued(0, 0, "JobHeldAdmin"), false},
		{"released", queued(1, 100, "Cleaning"), false},
		{"still leaving its nodes", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.held = map[kb.JobID]Hold{id: {Since: w.now}}
			w.slurm.Queue = c.queue
			w.now = w.now.Add(holdWatch - time.Second)
			out := w.decide()
			if has(out.Actions, HoldForUser) != c.given || c.given && out.Actions[0].Reference != "7_3" {
				t.Errorf("actions %v", out.Actions)
			}
			if _, looked := w.held[id]; !looked {
				t.Fatal("it was looked after no longer before its time")
			}
			w.now = w.now.Add(2 * time.Second)
			w.decide()
			if _, looked := w.held[id]; looked != c.given {
				t.Errorf("looked after further: %v", looked)
			}
		})
	}
}

// A user's requeuehold in a switch, whose prolog has yet to end, stays the user's. What is said of the job after it came
// back is as slurmctld says.
func TestRequeueholdInASwitchStaysTheUsers(t *testing.T) {
	type poll struct {
		priority uint64
		reason   string
	}
	for _, c := range []struct {
		name  string
		polls []poll
		given bool
	}{
		{"held, and taken over", []poll{{0, "JobHeldUser"}, {0, "Cleaning"}}, true},
		{"taken over at once", []poll{{0, "JobHeldAdmin"}}, true},
		{"held by its user", []poll{{0, "JobHeldUser"}, {0, "JobHeldUser"}}, false},
		{"requeued, and held later", []poll{{100, "BeginTime"}, {0, "JobHeldAdmin"}}, false},
		{"cancelled", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := steadyOnStock(t, "n1")
			w.node("n1", "ALLOCATED+POWERING_UP", "")
			w.job(7, "CONFIGURING", true, "n1")
			a := w.ensure(7, kb.Ref{Profile: "mitgcm", Version: 3}, "n1")
			w.settle()
			if a = w.allocs[a.ID]; a.Phase != kb.PhaseSwitching {
				t.Fatalf("phase %s", a.Phase)
			}
			delete(w.slurm.Jobs, 7)
			given := false
			for _, l := range append([]poll{{}}, c.polls...) {
				w.slurm.Queue = nil
				if l.reason != "" {
					w.slurm.Queue = []kb.SlurmJob{{ID: 7, Reference: "7", Restart: a.ID.Restart + 1, State: "PENDING", Priority: l.priority, Reason: l.reason}}
				}
				w.now = w.now.Add(time.Second)
				w.slurm.At = w.now
				given = has(w.decide().Actions, HoldForUser) || given
			}
			if given != c.given {
				t.Errorf("made the user's: %v", given)
			}
		})
	}
}

// While slurmctld cannot be seen, no hold is given up.
func TestHoldsOutlastSlurmctld(t *testing.T) {
	w := newWorld(t)
	id := kb.JobID{Job: 7}
	in := w.input()
	in.Held, in.Now = map[kb.JobID]Hold{id: {Since: w.now}}, w.now.Add(time.Hour)
	if out := Decide(in); len(out.Held) == 0 {
		t.Error("given up without a poll")
	}
}

// A slurmctld that died right after the hold may have forgotten it: the job is
// held again, however long slurmctld was away. What the user releases stays so.
func TestHoldThatSlurmctldForgot(t *testing.T) {
	id := kb.JobID{Job: 7}
	for _, c := range []struct {
		name, told, answers string
		restart             uint32
		priority            uint64
		held                bool
	}{
		{"forgotten", "one", "two", 1, 100, true},
		{"still held", "one", "two", 1, 0, false},
		{"released", "one", "one", 1, 100, false},
		{"not requeued yet", "one", "two", 0, 100, false},
		{"nobody knows", "", "two", 1, 100, false},
	} {
		w := newWorld(t)
		w.held, w.slurm.Start = map[kb.JobID]Hold{id: {Since: w.now, Boot: c.told}}, c.answers
		w.slurm.Queue = []kb.SlurmJob{{ID: 7, Reference: "7", Restart: c.restart, State: "PENDING", Priority: c.priority, Reason: "Resources"}}
		w.now = w.now.Add(time.Hour)
		if out := w.decide(); has(out.Actions, HoldForUser) != c.held {
			t.Errorf("%s: actions %v", c.name, out.Actions)
		}
		// Once: what it says after that is the user's.
		w.now = w.now.Add(time.Second)
		if out := w.decide(); has(out.Actions, HoldForUser) {
			t.Errorf("%s: held for ever: %v", c.name, out.Actions)
		}
	}
}

// A job that nobody holds here is an administrator's business.
func TestHoldsOfOthersStay(t *testing.T) {
	w := newWorld(t)
	w.slurm.Queue = []kb.SlurmJob{{ID: 7, Reference: "7", Restart: 1, State: "PENDING", Reason: "JobHeldAdmin"}}
	if out := w.decide(); len(out.Actions) > 0 {
		t.Errorf("actions %v", out.Actions)
	}
}
