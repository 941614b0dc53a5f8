// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// off is running, after its job has left and Slurm has issued the armed boot.
func off(t *testing.T, w *world, state, reason string) {
	t.Helper()
	w.now = w.now.Add(time.Second)
	delete(w.slurm.Jobs, 7)
	w.node("n1", state, reason)
	w.settle()
	w.now = w.now.Add(time.Second)
	w.settle()
	if w.nodes["n1"].Progress() != "loading" || !w.nodes["n1"].Desired.IsStock() {
		t.Fatalf("n1 is %s, wants %s", w.nodes["n1"].Progress(), w.nodes["n1"].Desired)
	}
}

// home boots n1 back to stock; no slurmd runs there.
func home(w *world) []Action {
	w.report("n1", kb.ProgressBooting, "", "")
	w.settle()
	w.silence("n1")
	w.settle()
	w.boot("n1", kernels[0], w.nodes["n1"].Pending.Token)
	return w.settle()
}

// homeAndSeen is that, and Slurm is polled after the boot.
func homeAndSeen(w *world) []Action {
	home(w)
	return w.pass(10 * time.Millisecond)
}

// said is the broker after Slurm was told again.
func said(w *world, state, reason string) {
	w.done(Action{Kind: RestoreState, Node: "n1"})
	w.now = w.now.Add(10 * time.Millisecond)
	w.node("n1", state, reason)
	w.settle()
}

// A node of which an administrator says that it fails is said to fail again.
func TestAdministratorsFailSurvivesTheReturn(t *testing.T) {
	w := running(t)
	w.node("n1", "ALLOCATED+FAIL+REBOOT_REQUESTED", "bad DIMM")
	if actions := w.settle(); has(actions, Disarm) || has(actions, ArmReturn) {
		t.Fatalf("the return is armed anew, which takes the reason: %v", actions)
	}
	off(t, w, "DOWN+DRAIN+FAIL+REBOOT_ISSUED", "bad DIMM : reboot issued")
	for _, action := range homeAndSeen(w) {
		if action.Kind == RestoreState && action.State == kb.StateFail && action.Text == "bad DIMM" {
			return
		}
	}
	t.Errorf("not said again; recorded: %+v", w.nodes["n1"].Slurm.Restore)
}

// What an administrator says of a node stays: the boot that would end it is taken
// back before slurmd may answer.
func TestAdministratorsDrainSurvivesTheReturn(t *testing.T) {
	for name, c := range map[string]struct {
		running, runningReason string
		issued                 string
		requeued, down         bool
	}{
		"drained while the job runs": {"ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM", "bad DIMM : reboot issued", false, false},
		// The drain and the end of the job fall between two polls.
		"drained at the end":         {"ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7", "bad DIMM : reboot issued", false, false},
		"drained before a label":     {"ALLOCATED+DRAIN+REBOOT_REQUESTED", "Reboot ASAP", "bad DIMM : reboot issued", false, false},
		"set down while the job ran": {"DOWN+DRAIN+REBOOT_REQUESTED", "bad DIMM", "bad DIMM : reboot issued", true, true},
		"set down at the end":        {"ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7", "bad DIMM : reboot issued", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			w.node("n1", c.running, c.runningReason)
			w.settle()
			if c.requeued {
				w.slurm.Queue = []kb.SlurmJob{{ID: 7, Reference: "7", Restart: 1, State: "PENDING", Reason: "BeginTime", Reboot: true}}
			}
			off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", c.issued)
			n := w.nodes["n1"]
			if n.Slurm.Restore == nil || n.Slurm.Restore.Reason != "bad DIMM" || n.Slurm.Restore.Down != c.down || n.Reboot != nil {
				t.Fatalf("recorded: %+v, reboot %+v", n.Slurm.Restore, n.Reboot)
			}
			actions := homeAndSeen(w)
			n = w.nodes["n1"]
			if !slurmdHeld(n) || !has(actions, RestoreState) || has(actions, ResumeNode) {
				t.Fatalf("held %v, %v", slurmdHeld(n), actions)
			}
			after := "IDLE+DRAIN+NOT_RESPONDING"
			if c.down {
				after = "DOWN+DRAIN+NOT_RESPONDING"
			}
			said(w, after, "bad DIMM")
			if n = w.nodes["n1"]; slurmdHeld(n) || n.Slurm.Registered != n.Boot.BootID || !n.Steady() {
				t.Fatalf("slurmd is held %v, known boot %q, %s", slurmdHeld(n), n.Slurm.Registered, n.Progress())
			}
			w.slurmd("n1")
			w.now = w.now.Add(time.Minute)
			actions = w.settle()
			if n = w.nodes["n1"]; n.Slurm.Restore != nil || has(actions, ArmReturn) || has(actions, ResumeNode) || has(actions, RestoreState) {
				t.Errorf("%+v, %v", n.Slurm.Restore, actions)
			}
		})
	}
}

// With ReturnToService=2 a registration ends "down"; the drain holds until it is
// said once more.
func TestAdministratorsDownSurvivesRegistration(t *testing.T) {
	w := running(t)
	w.node("n1", "DOWN+DRAIN+REBOOT_REQUESTED", "smoke")
	w.settle()
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "smoke : reboot issued")
	home(w)
	said(w, "DOWN+DRAIN", "smoke")
	w.slurmd("n1")
	w.node("n1", "IDLE+DRAIN", "smoke")
	if actions := w.pass(100 * time.Millisecond); !has(actions, DownNode) {
		t.Fatalf("not set down at once: %v", actions)
	}
	w.node("n1", "DOWN+DRAIN", "smoke")
	w.pass(100 * time.Millisecond)
	if n := w.nodes["n1"]; n.Slurm.Restore == nil {
		t.Fatal("forgotten before slurmd has registered")
	}
	w.pass(w.config.RegisterRetry)
	if n := w.nodes["n1"]; n.Slurm.Restore != nil {
		t.Errorf("%+v", n.Slurm.Restore)
	}
}

// Slurm takes a node down to boot it, once. An answer of slurmd ends that and leaves the boot: if the node is down again,
// somebody set it down.
func TestAdministratorsDownAfterAnEarlyAnswer(t *testing.T) {
	for reason, drained := range map[string]bool{"kprof: mitgcm@3 for job 7": false, "bad fan": true} {
		w := running(t)
		w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", reason)
		w.settle()
		off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", reason+" : reboot issued")
		home(w)
		w.node("n1", "IDLE+DRAIN+REBOOT_ISSUED", reason+" : reboot issued")
		w.pass(time.Second)
		if said := w.nodes["n1"].Slurm.Restore; (said != nil) != drained || said != nil && said.Down {
			t.Fatalf("%s: recorded before it is set down: %+v", reason, said)
		}
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM")
		actions := w.pass(time.Second)
		if !slices.ContainsFunc(actions, func(a Action) bool {
			return a.Kind == RestoreState && a.State == kb.StateDown && a.Text == "bad DIMM"
		}) {
			t.Errorf("%s: recorded %+v, %v", reason, w.nodes["n1"].Slurm.Restore, actions)
		}
		said(w, "DOWN+DRAIN+NOT_RESPONDING", "bad DIMM")
		if w.nodes["n1"].Slurm.Awaited.Phase == kb.BootForgotten {
			t.Errorf("%s: an answer to a boot that is over counts for the next one", reason)
		}
	}
}

// A broker that is killed between the halves of what it says says it whole again,
// and takes none of it for an administrator's.
func TestAdministratorsDrainSaidByTheNextBroker(t *testing.T) {
	w := running(t)
	w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM")
	w.settle()
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued")
	homeAndSeen(w)
	w.node("n1", "IDLE+NOT_RESPONDING", "")
	if actions := w.settle(); !has(actions, RestoreState) || w.nodes["n1"].Slurm.Restore == nil || !slurmdHeld(w.nodes["n1"]) {
		t.Errorf("%v, %+v", actions, w.nodes["n1"].Slurm.Restore)
	}
}

// Whoever takes the return back while the job runs, it is armed again; but not
// over an administrator's drain, nor over a kept node.
func TestReturnIsArmedAgain(t *testing.T) {
	for _, c := range []struct {
		name, state, reason string
		want                Kind
		not                 Kind
	}{
		{"cancel_reboot", "ALLOCATED", "", ArmReturn, Disarm},
		{"undrain", "ALLOCATED+REBOOT_REQUESTED", "", Disarm, ArmReturn},
		{"cancelled and drained", "ALLOCATED+DRAIN", "bad fan", CommentJob, ArmReturn},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := running(t)
			w.node("n1", c.state, c.reason)
			w.now = w.now.Add(time.Minute)
			if actions := w.settle(); !has(actions, c.want) || has(actions, c.not) {
				t.Errorf("%v", actions)
			}
		})
	}
}

// A node that was drained while it was not armed is booted without Slurm's
// waiting, which must be told that it knows that boot.
func TestAdministratorsDrainOfAnUnarmedNode(t *testing.T) {
	w := running(t)
	w.now = w.now.Add(time.Minute)
	w.node("n1", "ALLOCATED+DRAIN", "bad fan")
	w.settle()
	off(t, w, "IDLE+DRAIN", "bad fan")
	if actions := homeAndSeen(w); !has(actions, RestoreState) || !slurmdHeld(w.nodes["n1"]) {
		t.Errorf("%v", actions)
	}
}

// slurmctld that is reconfigured forgets that a node it boots is to be resumed.
func TestOwnDrainThatSlurmKept(t *testing.T) {
	for _, c := range []struct {
		state, reason string
		want          bool
	}{
		{"IDLE+DRAIN", "kprof: mitgcm@3 for job 7 : reboot issued", true},
		{"IDLE+DRAIN", "Reboot ASAP : reboot issued", true},
		{"DOWN+DRAIN", "kprof: mitgcm@3 for job 7 : reboot timed out", true},
		{"IDLE+DRAIN", "bad fan", false},
		{"IDLE+DRAIN", "kernel-broker: stock@1: no space", false},
		{"IDLE+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7", false},
		{"ALLOCATED+DRAIN", "kprof: mitgcm@3 for job 7", false},
		{"DOWN", "Not responding", false},
	} {
		w := steadyOnStock(t, "n1")
		w.node("n1", c.state, c.reason)
		if early := w.settle(); has(early, ResumeNode) {
			t.Errorf("%s %q: before slurmd has registered: %v", c.state, c.reason, early)
		}
		if actions := w.pass(healDelay + time.Second); has(actions, ResumeNode) != c.want {
			t.Errorf("%s %q: %v", c.state, c.reason, actions)
		}
	}
}

// slurmctld that is reconfigured forgets the boot that a job waits for. The kexec
// that cannot be called off is no crash, and the node serves on.
func TestBootThatSlurmForgot(t *testing.T) {
	w := booting(t)
	w.now = w.now.Add(time.Second)
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE", "")
	w.settle()
	w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
	w.settle()
	home(w)
	w.now = w.now.Add(time.Millisecond)
	if actions := w.settle(); !has(actions, SettleBoot) || !slurmdHeld(w.nodes["n1"]) {
		t.Fatalf("held %v, %v", slurmdHeld(w.nodes["n1"]), actions)
	}
	said(w, "IDLE+NOT_RESPONDING", "")
	if n := w.nodes["n1"]; slurmdHeld(n) || n.Slurm.Registered != n.Boot.BootID {
		t.Errorf("held %v, known %q", slurmdHeld(n), n.Slurm.Registered)
	}
	w.slurmd("n1")
	w.node("n1", "IDLE", "")
	if actions := w.settle(); has(actions, SettleBoot) {
		t.Errorf("%v", actions)
	}
}

// An administrator's reboot is the machine's own, once.
func TestAdministratorsReboot(t *testing.T) {
	w := steadyOnStock(t, "n1")
	start, kexecs := w.nodes["n1"].SlurmdStart, w.nodes["n1"].Kexecs
	w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kernel update : reboot issued")
	w.now = w.now.Add(time.Minute)
	w.settle()
	n := w.nodes["n1"]
	if n.Reboot == nil || !n.Reboot.Due || n.Pending != nil || n.SlurmdStart != start || n.Slurm.Restore != nil {
		t.Fatalf("%+v, pending %v, slurmd start %d", n.Reboot, n.Pending, n.SlurmdStart)
	}
	w.boot("n1", kernels[0], "")
	w.settle()
	w.settle()
	if n = w.nodes["n1"]; n.Reboot == nil || n.Reboot.Due || !n.Steady() {
		t.Fatalf("%+v, %s", n.Reboot, n.Progress())
	}
	w.node("n1", "IDLE", "")
	w.settle()
	if n = w.nodes["n1"]; n.Reboot != nil || n.Kexecs != kexecs {
		t.Errorf("%+v, %d kexecs", n.Reboot, n.Kexecs)
	}
}

// A job without a profile that asks for a boot gets the machine's own, and Slurm's wait ends with it.
func TestRebootForAPlainJob(t *testing.T) {
	w := steadyOnStock(t, "n1")
	start, kexecs := w.nodes["n1"].SlurmdStart, w.nodes["n1"].Kexecs
	w.job(8, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.begun = map[string]kb.BegunBoot{"n1": {Node: "n1", At: w.now, ForJob: true}}
	w.settle()
	n := w.nodes["n1"]
	if n.Reboot == nil || !n.Reboot.Due || n.Pending != nil || n.SlurmdStart != start {
		t.Fatalf("%+v, pending %v, slurmd start %d", n.Reboot, n.Pending, n.SlurmdStart)
	}
	w.begun = nil
	w.pass(2 * time.Minute)
	if n = w.nodes["n1"]; n.SlurmdStart != start || !n.Reboot.Due {
		t.Fatalf("slurmd registered the boot that is to come: start %d, %+v", n.SlurmdStart, n.Reboot)
	}
	w.boot("n1", kernels[0], "")
	w.settle()
	if n = w.nodes["n1"]; n.Reboot != nil || !n.Steady() || n.Kexecs != kexecs {
		t.Errorf("%+v, %s, %d kexecs", n.Reboot, n.Progress(), n.Kexecs)
	}
}

// One that leaves before its node has begun to boot has none rebooted.
func TestRebootForAPlainJobThatLeaves(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.job(8, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.begun = map[string]kb.BegunBoot{"n1": {Node: "n1", At: w.now, ForJob: true}}
	w.settle()
	w.begun = nil
	delete(w.slurm.Jobs, 8)
	w.node("n1", "IDLE", "")
	w.settle()
	if n := w.nodes["n1"]; n.Reboot != nil {
		t.Errorf("%+v", n.Reboot)
	}
}

// On a profile node the machine's own boot takes the place of the kexec to stock,
// when the job has left.
func TestAdministratorsRebootOfAProfileNode(t *testing.T) {
	w := running(t)
	w.node("n1", "ALLOCATED", "")
	w.now = w.now.Add(time.Minute)
	w.settle() // its return was taken back
	w.now = w.now.Add(time.Minute)
	w.nodes["n1"].Slurm.Requested, w.nodes["n1"].Slurm.Awaited = kb.SlurmBoot{}, kb.SlurmBoot{} // and the reboot came before it was armed again
	w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kernel update")
	if actions := w.settle(); has(actions, ArmReturn) || has(actions, Disarm) || w.nodes["n1"].Reboot == nil {
		t.Fatalf("%v", actions)
	}
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE+DRAIN+REBOOT_REQUESTED", "kernel update")
	w.settle()
	if n := w.nodes["n1"]; n.Pending != nil || n.Reboot.Due || !n.Steady() {
		t.Fatalf("%v, %+v, %s", n.Pending, n.Reboot, n.Progress())
	}
	w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kernel update : reboot issued")
	w.settle()
	if n := w.nodes["n1"]; n.Pending != nil || !n.Reboot.Due {
		t.Errorf("%v, %+v", n.Pending, n.Reboot)
	}
}

// Slurm boots only what answers or is down: a node on a kernel that no job has is set
// down for an administrator's reboot, also while slurmctld, restarted, knows nothing of it.
func TestAdministratorsRebootOfASilentNode(t *testing.T) {
	for _, state := range []string{"IDLE+DRAIN+REBOOT_REQUESTED", "UNKNOWN+DRAIN+REBOOT_REQUESTED"} {
		w := running(t)
		w.node("n1", "ALLOCATED", "")
		w.now = w.now.Add(time.Minute)
		w.settle()
		w.now = w.now.Add(time.Minute)
		w.nodes["n1"].Slurm.Requested, w.nodes["n1"].Slurm.Awaited = kb.SlurmBoot{}, kb.SlurmBoot{}
		delete(w.slurm.Jobs, 7)
		w.node("n1", "IDLE+DRAIN+REBOOT_REQUESTED", "kernel update")
		w.settle()
		w.node("n1", state, "kernel update")
		if actions := w.pass(time.Second); has(actions, DownNode) {
			t.Errorf("%s: set down while it answers: %v", state, actions)
		}
		w.node("n1", state+"+NOT_RESPONDING", "kernel update")
		if actions := w.pass(time.Second); !has(actions, DownNode) {
			t.Errorf("%s: not set down: %v", state, actions)
		}
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED+NOT_RESPONDING", "kernel update : reboot issued")
		w.pass(time.Second)
		if n := w.nodes["n1"]; !n.Reboot.Due || n.Slurm.Restore != nil {
			t.Errorf("%s: %+v, out of service %+v", state, n.Reboot, n.Slurm.Restore)
		}
	}
}

// A power_up takes the reason of an armed boot away. Without one nobody could tell afterwards, where a restarted slurmctld forgets
// to resume the node, whose drain it is.
func TestArmedNodeWithoutReasonIsLabelled(t *testing.T) {
	w := running(t)
	for reason, want := range map[string]bool{"": true, "Reboot ASAP": true, "kprof: mitgcm@3 for job 7": false, "bad DIMM": false} {
		w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", reason)
		if actions := w.decide().Actions; has(actions, LabelNodes) != want {
			t.Errorf("reason %q: %v", reason, actions)
		}
	}
}

// Slurm never starts a job that was suspended before it had begun. It waits for
// its resume, and then again for nodes.
func TestSuspendedInTheSwitch(t *testing.T) {
	const node = "ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED"
	for name, c := range map[string]struct {
		states []string
		node   string
		want   kb.Phase
	}{
		"suspended":                 {[]string{"SUSPENDED"}, node, kb.PhaseSwitching},
		"suspended, nodes are up":   {[]string{"SUSPENDED"}, "ALLOCATED+DRAIN+REBOOT_REQUESTED", kb.PhaseSwitching},
		"resumed":                   {[]string{"SUSPENDED", "RUNNING"}, node, kb.PhaseFailed},
		"resumed, nodes are up":     {[]string{"SUSPENDED", "RUNNING"}, "ALLOCATED+DRAIN+REBOOT_REQUESTED", kb.PhaseFailed},
		"resumed between two polls": {[]string{"RUNNING"}, node, kb.PhaseFailed},
		"never":                     {[]string{"CONFIGURING"}, node, kb.PhaseSwitching},
	} {
		w := booting(t)
		w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
		for _, state := range c.states {
			w.node("n1", c.node, "Reboot ASAP")
			w.job(7, state, true, "n1")
			w.settle()
			w.now = w.now.Add(10 * time.Second)
		}
		actions := w.settle()
		a := w.allocs[kb.JobID{Job: 7}]
		if a.Phase != c.want || a.Hold || has(actions, RequeueJob) != (c.want == kb.PhaseFailed) || has(actions, HoldJob) {
			t.Errorf("%s: %s, %s, held %v, %v", name, a.Phase, a.Reason, a.Hold, actions)
		}
	}
}

// A node that is drained in the switch before its return is armed needs no arming: no other job comes there. Its job begins,
// and the return is armed when the drain has ended.
func TestDrainBeforeTheReturnIsArmed(t *testing.T) {
	w := booting(t)
	w.node("n1", "ALLOCATED+DRAIN+POWERING_UP", "bad fan")
	w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
	w.settle()
	w.slurmd("n1")
	w.node("n1", "ALLOCATED+DRAIN", "bad fan")
	if actions := w.settle(); w.allocs[kb.JobID{Job: 7}].Phase != kb.PhaseReady || has(actions, ArmReturn) {
		t.Fatalf("the job waits: %+v, %v", w.allocs[kb.JobID{Job: 7}], actions)
	}
	w.job(7, "RUNNING", true, "n1")
	w.now = w.now.Add(time.Minute)
	w.node("n1", "ALLOCATED", "")
	if actions := w.settle(); !has(actions, ArmReturn) {
		t.Errorf("not armed after the drain's end: %v", actions)
	}
}

// What an administrator takes back while a job's node boots is not said again: the registration after a job's boot ends no
// drain. A node that was resumed just before the job came looks the same to a broker that polls Slurm too late.
func TestResumeDuringAJobsBoot(t *testing.T) {
	w := booting(t)
	w.node("n1", "ALLOCATED+DRAIN+POWERING_UP", "bad fan")
	w.settle()
	w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
	w.settle()
	w.slurmd("n1")
	if w.nodes["n1"].Slurm.Restore == nil {
		t.Fatal("not recorded")
	}
	w.node("n1", "ALLOCATED", "")
	if actions := w.settle(); has(actions, DrainNode) || w.nodes["n1"].Slurm.Restore != nil {
		t.Errorf("drained again: %v, %+v", actions, w.nodes["n1"].Slurm.Restore)
	}
}
