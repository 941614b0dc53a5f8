// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A drain between the broker's last poll and the boot is heard too: slurmd does
// not answer before Slurm was polled once more.
func TestDrainAfterTheLastPollIsHeard(t *testing.T) {
	for name, drained := range map[string]bool{"drained": true, "not drained": false} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
			home(w)
			if !slurmdHeld(w.nodes["n1"]) {
				t.Fatal("slurmd may answer before Slurm was polled after the boot")
			}
			if drained {
				w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM")
			}
			actions := w.pass(10 * time.Millisecond)
			if has(actions, RestoreState) != drained || slurmdHeld(w.nodes["n1"]) != drained {
				t.Errorf("held %t, %v", slurmdHeld(w.nodes["n1"]), actions)
			}
			if !drained {
				return
			}
			// The broker is killed after the resume, or the drain fails. A resume may leave the reason.
			for _, reason := range []string{"", "bad DIMM"} {
				w.node("n1", "IDLE+NOT_RESPONDING", reason)
				actions = w.pass(time.Second)
				n := w.nodes["n1"]
				if !has(actions, RestoreState) || has(actions, SettleBoot) || n.Slurm.Restore == nil || !slurmdHeld(n) {
					t.Errorf("half restored, reason %q: held %t, %+v, %v", reason, slurmdHeld(n), n.Slurm.Restore, actions)
				}
			}
			said(w, "IDLE+DRAIN+NOT_RESPONDING", "bad DIMM")
			if n := w.nodes["n1"]; slurmdHeld(n) || n.Slurm.Registered != n.Boot.BootID {
				t.Errorf("restored: held %t, known boot %q", slurmdHeld(n), n.Slurm.Registered)
			}
		})
	}
}

// The same of an armed node that was reset, whose boot has no token, and of a broker that has just started: it has not
// polled at all.
func TestDrainOfAnArmedNodeThatWasResetIsHeard(t *testing.T) {
	w := running(t)
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
	w.silence("n1")
	w.settle()
	w.boot("n1", kernels[0], "")
	in := w.input()
	in.Slurm = kb.SlurmView{}
	if out := Decide(in); !slices.ContainsFunc(out.Nodes, func(n *kb.Node) bool { return n.Name == "n1" && slurmdHeld(n) }) {
		t.Error("slurmd may answer before the broker has polled Slurm")
	}
	w.settle()
	if !slurmdHeld(w.nodes["n1"]) {
		t.Error("slurmd may answer before Slurm was polled after the boot")
	}
	w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM")
	if actions := w.pass(10 * time.Millisecond); !has(actions, RestoreState) || !slurmdHeld(w.nodes["n1"]) {
		t.Errorf("held %t, %v", slurmdHeld(w.nodes["n1"]), actions)
	}
}

// A node that is back before slurmctld has issued the boot it is armed for waits
// for that, but not for ever.
func TestBootFasterThanSlurm(t *testing.T) {
	for name, c := range map[string]struct {
		state string
		after time.Duration
		held  bool
	}{
		"not issued":            {"IDLE+DRAIN+REBOOT_REQUESTED", time.Second, true},
		"issued":                {"DOWN+DRAIN+REBOOT_ISSUED", time.Second, false},
		"never issued":          {"IDLE+DRAIN+REBOOT_REQUESTED", time.Minute, false},
		"held for dead already": {"IDLE+DRAIN+REBOOT_REQUESTED+NOT_RESPONDING", time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			off(t, w, "IDLE+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
			home(w)
			w.node("n1", c.state, "kprof: mitgcm@3 for job 7")
			w.pass(c.after)
			if held := slurmdHeld(w.nodes["n1"]); held != c.held {
				t.Errorf("slurmd held: %t", held)
			}
		})
	}
}

// slurmctld that restarts knows nothing of a node before its slurmd answers: one
// that is held back would be held back for ever.
func TestRestartedSlurmctldIsAnswered(t *testing.T) {
	w := running(t)
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
	home(w)
	if !slurmdHeld(w.nodes["n1"]) {
		t.Fatal("slurmd is not held back")
	}
	w.node("n1", "UNKNOWN+DRAIN+REBOOT_REQUESTED+POWERING_UP", "Reboot ASAP")
	w.pass(time.Second)
	if slurmdHeld(w.nodes["n1"]) {
		t.Error("slurmd is held back for ever")
	}
}

// An administrator who reboots a node seconds after a return gets the reboot: a
// boot that was ours is over once Slurm has it behind it.
func TestRebootSoonAfterAReturn(t *testing.T) {
	w := running(t)
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
	home(w)
	w.pass(time.Second)
	w.slurmd("n1")
	w.node("n1", "IDLE", "")
	w.pass(time.Second)
	w.node("n1", "IDLE+DRAIN+REBOOT_REQUESTED", "kernel update")
	w.pass(time.Second)
	if n := w.nodes["n1"]; n.Slurm.Restore != nil || n.Slurm.Armed() {
		t.Errorf("armed by us: %t, taken for a drain: %+v", n.Slurm.Armed(), n.Slurm.Restore)
	}
}

// So does one whose reboot follows ours with no poll in between.
func TestRebootAtTheEndOfAReturn(t *testing.T) {
	w := running(t)
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
	home(w)
	w.pass(time.Second)
	w.slurmd("n1")
	w.node("n1", "IDLE+DRAIN+REBOOT_REQUESTED", "kernel update")
	w.pass(time.Second)
	if n := w.nodes["n1"]; n.Slurm.Restore != nil || n.Slurm.Armed() || n.Reboot == nil {
		t.Errorf("armed by us: %t, taken for a drain: %+v, reboot %+v", n.Slurm.Armed(), n.Slurm.Restore, n.Reboot)
	}
}

// A drain is heard of a node, too, that slurmctld has heard nothing of since it
// restarted: the node may have lost its power.
func TestDrainOfAnUnknownNodeIsHeard(t *testing.T) {
	w := running(t)
	w.node("n1", "UNKNOWN+DRAIN+REBOOT_REQUESTED", "bad DIMM")
	w.pass(time.Second)
	if said := w.nodes["n1"].Slurm.Restore; said == nil || said.Reason != "bad DIMM" || said.Down {
		t.Errorf("recorded: %+v", said)
	}
}

// An administrator asks for a reboot of a node right after its return, of which the
// broker has not seen the end since slurmctld restarted: it is no drain.
func TestRebootAtARestartedSlurmctld(t *testing.T) {
	w := running(t)
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
	home(w)
	w.slurmd("n1")
	w.node("n1", "UNKNOWN+DRAIN+REBOOT_REQUESTED", "kernel update")
	if actions := w.pass(time.Second); has(actions, RestoreState) || w.nodes["n1"].Slurm.Restore != nil {
		t.Errorf("%+v, %v", w.nodes["n1"].Slurm.Restore, actions)
	}
}

// An administrator resumes a node that a restarted slurmctld has heard nothing of:
// what was said of it is not said again. Slurm 24.11 refuses that, and does it.
func TestTakenBackAtARestartedSlurmctld(t *testing.T) {
	w := running(t)
	w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM")
	w.settle()
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued")
	w.report("n1", kb.ProgressBooting, "", "")
	w.settle()
	w.silence("n1")
	w.node("n1", "UNKNOWN+NOT_RESPONDING", "bad DIMM")
	w.pass(time.Second)
	w.boot("n1", kernels[0], w.nodes["n1"].Pending.Token)
	if actions := w.pass(time.Second); has(actions, RestoreState) {
		t.Errorf("%v", actions)
	}
	if actions := w.pass(time.Second); slurmdHeld(w.nodes["n1"]) || w.nodes["n1"].Slurm.Restore != nil || has(actions, RestoreState) {
		t.Errorf("held %t, %+v, %v", slurmdHeld(w.nodes["n1"]), w.nodes["n1"].Slurm.Restore, actions)
	}
}

// slurmctld restarts while it is told again what an administrator said: slurmd
// answers once it knows, or once the administrator has taken it back.
func TestSaidAgainToARestartedSlurmctld(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		said          bool
	}{
		"told":       {"UNKNOWN+DRAIN+REBOOT_REQUESTED", "UNKNOWN+DRAIN+NOT_RESPONDING", true},
		"taken back": {"UNKNOWN+DRAIN+NOT_RESPONDING", "UNKNOWN+NOT_RESPONDING", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM")
			w.settle()
			off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued")
			home(w)
			w.node("n1", c.before, "bad DIMM")
			if actions := w.pass(time.Second); !has(actions, RestoreState) || !slurmdHeld(w.nodes["n1"]) {
				t.Fatalf("held %t, %v", slurmdHeld(w.nodes["n1"]), actions)
			}
			said(w, c.after, "bad DIMM")
			if n := w.nodes["n1"]; slurmdHeld(n) {
				t.Errorf("slurmd is held back for ever: %+v", n.Slurm.Restore)
			}
			w.slurmd("n1")
			w.node("n1", "IDLE", "")
			if c.said {
				w.node("n1", "IDLE+DRAIN", "bad DIMM")
			}
			if actions := w.pass(time.Minute); w.nodes["n1"].Slurm.Restore != nil || has(actions, RestoreState) || has(actions, DrainNode) || has(actions, DownNode) {
				t.Errorf("%+v, %v", w.nodes["n1"].Slurm.Restore, actions)
			}
		})
	}
}

// Slurm 26.05 marks a job's boot as an administrator's is marked: it is none.
func TestAJobsBootIsNoReboot(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.job(7, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+REBOOT_ISSUED+POWERING_UP", "")
	w.pass(time.Second)
	if r := w.nodes["n1"].Reboot; r != nil {
		t.Errorf("taken for an administrator's: %+v", r)
	}
}

// An administrator drains a node that Slurm 26.05 boots for a job, which Slurm then
// requeues: the node is to be drained, not set down.
func TestDrainOfANodeThatBootsForAJob(t *testing.T) {
	w := switching(t)
	delete(w.slurm.Jobs, 7)
	w.slurm.Queue = []kb.SlurmJob{{ID: 7, Reference: "7", State: "PENDING", Restart: 1}}
	w.node("n1", "IDLE+DRAIN+REBOOT_ISSUED+NOT_RESPONDING+POWERING_UP", "bad fan")
	w.pass(time.Second)
	if said := w.nodes["n1"].Slurm.Restore; said == nil || said.Down || w.nodes["n1"].Reboot != nil {
		t.Errorf("recorded: %+v, reboot %+v", said, w.nodes["n1"].Reboot)
	}
}

// A drain stays a drain when it is the broker that had the job requeued: that a
// job was thrown off its node tells a node set down only where nobody else did it.
func TestDrainOfANodeWhoseJobTheBrokerRequeues(t *testing.T) {
	for name, change := range map[string]func(a *kb.Allocation){
		"thrown off by Slurm":        func(*kb.Allocation) {},
		"suspended before its begin": func(a *kb.Allocation) { a.Suspended = true },
		"failed":                     func(a *kb.Allocation) { a.Phase = kb.PhaseFailed },
	} {
		w := running(t)
		n := w.nodes["n1"]
		change(w.allocs[kb.JobID{Job: 7}])
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued")
		wasDowned := func() bool {
			d := &decision{in: w.input(), nodes: w.nodes, allocs: w.allocs}
			return d.thrownOff(n)
		}
		if wasDowned() {
			t.Errorf("%s: set down, and no job was thrown off", name)
		}
		w.slurm.Queue = []kb.SlurmJob{{ID: 7, Reference: "7", Restart: 1, State: "PENDING", Reason: "BeginTime", Reboot: true}}
		if down := wasDowned(); down != (name == "thrown off by Slurm") {
			t.Errorf("%s: requeued: set down: %t", name, down)
		}
		w.slurm.Queue, w.slurm.Jobs[7] = nil, kb.SlurmJob{ID: 7, Reference: "7", Restart: 1, State: "COMPLETING", Reboot: true}
		if down := wasDowned(); down != (name == "thrown off by Slurm") {
			t.Errorf("%s: requeued, and completing: set down: %t", name, down)
		}
		delete(w.slurm.Jobs, 7)
		w.slurm.Queue, w.slurm.NodeFailed = nil, map[uint32]bool{7: true} // with --no-requeue
		if down := wasDowned(); down != (name == "thrown off by Slurm") {
			t.Errorf("%s: ended: set down: %t", name, down)
		}
	}
}
