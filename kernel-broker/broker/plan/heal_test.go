// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/observe"
)

// A node that Slurm took down over a boot of the broker's own serves again when
// the broker is back. What anybody else took it down for is not the broker's.
func TestHealsANodeThatIsDownForItsOwnBoot(t *testing.T) {
	const late = "kprof: mitgcm@3 for job 7 : reboot issued : reboot timed out"
	for _, c := range []struct {
		name, state, reason string
		change              func(w *world)
		want                bool
	}{
		{"the return took too long", "DOWN", late, nil, true},
		{"and the drain of it is left", "DOWN+DRAIN", late, nil, true},
		{"a job's boot took too long", "DOWN", "ResumeTimeout reached", nil, true},
		{"from 26.05 on, where slurmctld restarted meanwhile", "DOWN", "reboot timed out", nil, true},
		{"a node without power", "DOWN+POWERED_DOWN", "ResumeTimeout reached", nil, false},
		{"an administrator's reboot", "DOWN", "new firmware : reboot issued : reboot timed out", nil, false},
		{"an administrator's reboot that is to end in DOWN", "DOWN", "Reboot ASAP : reboot issued : reboot complete", nil, false},
		{"the same, from 24.11 on", "DOWN", "Reboot ASAP : reboot complete", nil, false},
		{"an administrator's word", "DOWN", "bad DIMM", nil, false},
		{"its kexec was taken for a crash", "DOWN", "Node unexpectedly rebooted", nil, true},
		{"a crash", "DOWN", "Node unexpectedly rebooted", func(w *world) { w.boot("n1", kernels[0], ""); w.settle(); w.slurmd("n1") }, false},
		{"the return is still awaited", "DOWN+DRAIN+REBOOT_ISSUED", late, nil, false},
		{"no slurmd yet", "DOWN", late, func(w *world) { a := w.agents["n1"]; a.Slurmd.Running = false; w.agents["n1"] = a }, false},
		{"no agent", "DOWN", late, func(w *world) { w.silence("n1") }, false},
		{"it serves", "IDLE", late, nil, false},
		{"Slurm forgot the return", "IDLE+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued", nil, true},
		{"Slurm forgot a power_down that took the return back", "IDLE+DRAIN", "", nil, true},
		{"and has yet to carry it out", "IDLE+DRAIN+POWER_DOWN", "", nil, false},
		{"an administrator's drain", "IDLE+DRAIN", "bad DIMM", nil, false},
		{"it had lost its kernel, and nothing is armed", "DOWN", "kprof: lost mitgcm@3 under job 7: it rebooted", nil, true},
		{"and Slurm has switched it off", "DOWN+POWERED_DOWN", "kprof: lost mitgcm@3 under job 7: it rebooted", func(w *world) { w.silence("n1") }, true},
		{"and Slurm is switching it off", "DOWN+POWERING_DOWN", "kprof: lost mitgcm@3 under job 7: it rebooted", func(w *world) { w.silence("n1") }, false},
		{"it is off, and an administrator said so", "DOWN+POWERED_DOWN", "bad DIMM", func(w *world) { w.silence("n1") }, false},
		{"and an administrator drained it", "IDLE+DRAIN+REBOOT_ISSUED", "bad DIMM", nil, false},
	} {
		w := running(t)
		delete(w.slurm.Jobs, 7)
		w.node("n1", "DOWN", late) // in the broker's absence
		w.pass(time.Second)
		w.pass(time.Second)
		w.report("n1", kb.ProgressBooting, "", "")
		w.settle()
		w.boot("n1", kernels[0], w.nodes["n1"].Pending.Token)
		w.settle()
		w.slurmd("n1")
		w.node("n1", c.state, c.reason)
		if c.change != nil {
			c.change(w)
		}
		if got := has(w.pass(healDelay+time.Second), ResumeNode); got != c.want {
			t.Errorf("%s: resumes %v", c.name, got)
		}
	}
	// A failure of the node is for its administrator.
	w := steadyOnStock(t, "n1")
	w.nodes["n1"].Failure = &kb.Failure{Kind: kb.FailureNode, Cause: "x"}
	w.node("n1", "DOWN", late)
	if has(w.settle(), ResumeNode) {
		t.Error("a failed node is resumed")
	}
}

// A boot that is behind the node and that Slurm never issues is taken back.
func TestHealsANodeWhoseBootIsNeverIssued(t *testing.T) {
	w := running(t)
	off(t, w, "IDLE+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	home(w)
	w.node("n1", "IDLE+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.pass(observe.AskedFor + time.Second)
	w.slurmd("n1")
	if actions := w.pass(time.Second); has(actions, Disarm) || has(actions, ResumeNode) {
		t.Fatalf("slurmctld has no time to issue the boot: %v", actions)
	}
	if actions := w.pass(issueTime); !has(actions, Disarm) {
		t.Fatalf("the boot is not taken back: %v", actions)
	} else if i := slices.IndexFunc(actions, func(a Action) bool { return a.Kind == Disarm }); len(actions[i].Seen) != 1 || actions[i].Seen[0].Reason != "kprof: mitgcm@3 for job 7" {
		t.Errorf("it does not say what it replaces: %+v", actions[i])
	}
	w.node("n1", "IDLE+DRAIN", "kprof: mitgcm@3 for job 7")
	if actions := w.pass(time.Second); !has(actions, ResumeNode) {
		t.Errorf("not resumed: %v", actions)
	}
}

// Slurm 26.05 that took an earlier answer of slurmd for a job's boot keeps the flag of
// that boot. It is no administrator's reboot: the job gets another try, and the node
// is drained and resumed, which is what ends the wait.
func TestHealsANodeWhoseBootForAJobIsForgotten(t *testing.T) {
	w := switching(t)
	w.node("n1", "ALLOCATED+REBOOT_ISSUED", "")
	w.pass(time.Second)
	if a := w.allocs[kb.JobID{Job: 7}]; a.Phase != kb.PhaseFailed || !a.RetryNow || a.Hold {
		t.Fatalf("allocation is %+v", a)
	}
	if r := w.nodes["n1"].Reboot; r != nil {
		t.Errorf("taken for an administrator's reboot: %+v", r)
	}
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE+REBOOT_ISSUED", "")
	actions := w.pass(time.Second)
	if !has(actions, DrainNode) || has(actions, ArmReturn) {
		t.Fatalf("not drained: %v", actions)
	}
	w.node("n1", "IDLE+DRAIN+REBOOT_ISSUED", actions[0].Text)
	w.slurmd("n1")
	if actions := w.pass(healDelay + time.Second); !has(actions, ResumeNode) || has(actions, DrainNode) {
		t.Errorf("not resumed: %v", actions)
	}
}

// Slurm may forget the boot just when the job's kernel is there: its return cannot be
// armed then, and the job gets another try.
func TestAForgottenBootIsMissedOnTheJobsKernel(t *testing.T) {
	w := booting(t)
	w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
	w.node("n1", "ALLOCATED+REBOOT_ISSUED", "")
	if actions := w.pass(time.Second); has(actions, ArmReturn) || has(actions, Disarm) {
		t.Errorf("armed: %v", actions)
	}
	if a := w.allocs[kb.JobID{Job: 7}]; a.Phase != kb.PhaseFailed || !a.RetryNow {
		t.Fatalf("allocation is %+v", a)
	}
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE+REBOOT_ISSUED", "")
	if actions := w.pass(time.Second); !has(actions, DrainNode) || has(actions, ArmReturn) {
		t.Fatalf("not drained: %v", actions)
	}
	w.node("n1", "IDLE+DRAIN+REBOOT_ISSUED", kb.ReasonReturn+" x")
	w.pass(time.Second)
	if w.nodes["n1"].Progress() != "loading" {
		t.Errorf("n1 is %s", w.nodes["n1"].Progress())
	}
}

// A job that is to start at once gets a reason in the queue in a moment, or, where many wait, none for hours.
func TestAJobWithoutAReasonIsNotAwaitedForever(t *testing.T) {
	for _, c := range []struct {
		reason      string
		age         time.Duration
		over, start bool
	}{
		{"None", time.Minute, false, false},
		{"Cleaning", time.Minute, false, false},
		{"None", reasonTime + time.Second, true, false},
		{"Cleaning", reasonTime + time.Second, true, false},
		{"BeginTime", reasonTime + time.Second, false, true},
		{"Priority", time.Minute, true, false},
	} {
		w := newWorld(t)
		w.slurm.Queue = []kb.SlurmJob{{ID: 7, Reference: "7", Restart: 1, State: "PENDING", Reason: c.reason, Reboot: true}}
		a := &kb.Allocation{ID: kb.JobID{Job: 7}, Phase: kb.PhaseFailed, RetryNow: true, Ended: w.now}
		w.now = w.now.Add(c.age)
		d := &decision{in: w.input()}
		if over := d.settleRequeued(a); over != c.over || has(d.out.Actions, StartJob) != c.start {
			t.Errorf("%s after %v: over %t, %v", c.reason, c.age, over, d.out.Actions)
		}
	}
}
