// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A resume leaves the reason of the drain, and the return that is armed again shows it
// as that of a drain: it is taken back all the same, and the node is labelled.
func TestDrainTakenBackUnderAJob(t *testing.T) {
	w := running(t)
	said := func(state, by string) []Action {
		w.nodeBy("n1", state, "bad DIMM", by)
		return w.pass(time.Second)
	}
	said("ALLOCATED+DRAIN+REBOOT_REQUESTED", "root@2026-11-24T06:12:16")
	if w.nodes["n1"].Slurm.Restore == nil {
		t.Fatal("the drain is not heard")
	}
	if actions := said("ALLOCATED", "root@2026-11-24T06:12:16"); !has(actions, ArmReturn) || w.nodes["n1"].Slurm.Restore != nil {
		t.Fatalf("%+v, %v", w.nodes["n1"].Slurm.Restore, actions)
	}
	if actions := said("ALLOCATED+DRAIN+REBOOT_REQUESTED", "root@2026-11-24T06:12:16"); !has(actions, LabelNodes) || w.nodes["n1"].Slurm.Restore != nil {
		t.Errorf("%+v, %v", w.nodes["n1"].Slurm.Restore, actions)
	}
	delete(w.slurm.Jobs, 7)
	said("DOWN+DRAIN+REBOOT_ISSUED", "slurm@2026-11-24T06:12:40")
	if n := w.nodes["n1"]; n.Slurm.Restore != nil {
		t.Errorf("once the boot is issued: %+v", n.Slurm.Restore)
	}
	w = running(t)
	said("ALLOCATED", "root@2026-11-24T06:12:16")
	said("ALLOCATED+DRAIN+REBOOT_REQUESTED", "root@2026-11-24T06:13:01")
	if n := w.nodes["n1"]; n.Slurm.Restore == nil {
		t.Error("the same words, said again, are not heard")
	}
}

// Newer Slurm holds a node that is resumed for silent, and one that its job leaves then is set down: not for what was taken back.
func TestNodeIsNotSetDownForWhatWasTakenBack(t *testing.T) {
	w := running(t)
	w.nodeBy("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM", "root@1")
	w.pass(time.Second)
	w.nodeBy("n1", "ALLOCATED+NOT_RESPONDING", "bad DIMM", "root@1")
	w.pass(time.Second)
	delete(w.slurm.Jobs, 7)
	w.nodeBy("n1", "IDLE+DRAIN+REBOOT_REQUESTED+NOT_RESPONDING", "bad DIMM", "root@1")
	w.pass(time.Second)
	actions := w.pass(time.Second)
	i := slices.IndexFunc(actions, func(a Action) bool { return a.Kind == DownNode })
	if i < 0 || !strings.HasPrefix(actions[i].Text, kb.ReasonReturn) {
		t.Fatalf("%v", actions)
	}
	w.nodeBy("n1", "DOWN+DRAIN", actions[i].Text, "slurm@2")
	w.pass(time.Second)
	if n := w.nodes["n1"]; n.Slurm.Restore != nil || !n.Desired.IsStock() {
		t.Errorf("out of service %+v, wants %s", n.Slurm.Restore, n.Desired)
	}
}

// What was taken back while the node booted is not said again.
func TestAdministratorResumesInTheReturn(t *testing.T) {
	w := running(t)
	w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM")
	w.settle()
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued")
	if actions := home(w); has(actions, RestoreState) || !slurmdHeld(w.nodes["n1"]) {
		t.Fatalf("before Slurm was polled: slurmd is held %v, %v", slurmdHeld(w.nodes["n1"]), actions)
	}
	w.node("n1", "IDLE+NOT_RESPONDING", "")
	if actions := w.pass(10 * time.Millisecond); has(actions, RestoreState) || w.nodes["n1"].Slurm.Restore != nil {
		t.Errorf("%+v, %v", w.nodes["n1"].Slurm.Restore, actions)
	}
}

func TestAdministratorResumes(t *testing.T) {
	w := running(t)
	w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM")
	w.settle()
	if w.nodes["n1"].Slurm.Restore == nil {
		t.Fatal("not recorded")
	}
	w.now = w.now.Add(time.Minute)
	w.node("n1", "ALLOCATED", "")
	if actions := w.settle(); w.nodes["n1"].Slurm.Restore != nil || !has(actions, ArmReturn) {
		t.Errorf("%+v, %v", w.nodes["n1"].Slurm.Restore, actions)
	}
}

// What is set again is set once for each poll of Slurm: an administrator may take it back before the next one.
func TestAdministratorResumesWhatWasSetAgain(t *testing.T) {
	w := running(t)
	w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM")
	w.settle()
	off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued")
	if actions := homeAndSeen(w); !has(actions, RestoreState) {
		t.Fatalf("not set again: %v", actions)
	}
	w.now = w.now.Add(10 * time.Millisecond)
	w.done(Action{Kind: RestoreState, Node: "n1"})
	w.unanswered = true
	if actions := w.pass(2 * time.Second); has(actions, RestoreState) {
		t.Errorf("set once more before Slurm was seen: %v", actions)
	}
	w.unanswered = false
	w.node("n1", "IDLE+NOT_RESPONDING", "")
	if actions := w.pass(10 * time.Millisecond); has(actions, RestoreState) || w.nodes["n1"].Slurm.Restore != nil {
		t.Errorf("resumed: %+v, %v", w.nodes["n1"].Slurm.Restore, actions)
	}
}

// A slurmctld that was killed may have forgotten that it issued the armed boot, with all of the last seconds: the boot that
// it then asks for is ours, and a drain is heard. Without the job it is an administrator's.
func TestSlurmctldForgetsTheIssuedBoot(t *testing.T) {
	for _, forgot := range []bool{true, false} {
		w := running(t)
		off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
		homeAndSeen(w)
		if n := w.nodes["n1"]; n.Slurm.Awaited.Owner != kb.OwnerBroker {
			t.Fatalf("not issued: %+v", n)
		}
		if forgot {
			w.job(7, "CONFIGURING", true, "n1")
		}
		w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "Reboot ASAP")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Slurm.Armed() != forgot {
			t.Errorf("job is back %v: armed %v", forgot, n.Slurm.Armed())
		}
	}
}

// A slurmctld that is killed after a return may ask for that boot once more. The broker, which was away, finds a drain there
// and no word of its own, and does not take it for an administrator's reboot: Slurm would end the drain with that.
func TestDrainOfABootThatIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		state, reason string
		job           bool
		rebooted      bool
	}{
		"asked for, with the job":        {"ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM", true, false},
		"asked for, slurmctld is silent": {"UNKNOWN+DRAIN+REBOOT_REQUESTED", "bad DIMM", true, false},
		"issued, and drained after that": {"DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM", false, false},
		"an administrator's":             {"IDLE+DRAIN+REBOOT_REQUESTED", "kernel update", false, true},
		"an administrator's, issued":     {"DOWN+DRAIN+REBOOT_ISSUED", "kernel update : reboot issued", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
			home(w)
			w.slurmd("n1")
			w.node("n1", "IDLE", "")
			w.pass(time.Second)
			if n := w.nodes["n1"]; n.Slurm.Armed() {
				t.Fatal("still armed after the return")
			}
			if c.job {
				w.job(7, "CONFIGURING", true, "n1")
			}
			w.node("n1", c.state, c.reason)
			w.pass(time.Second)
			n := w.nodes["n1"]
			if (n.Reboot != nil) != c.rebooted || (n.Slurm.Restore == nil) != c.rebooted {
				t.Fatalf("reboot %+v, out of service %+v", n.Reboot, n.Slurm.Restore)
			}
			if c.rebooted {
				return
			}
			delete(w.slurm.Jobs, 7)
			w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", c.reason+" : reboot issued")
			w.pass(time.Second)
			a := w.agents["n1"]
			a.Slurmd = Slurmd{}
			w.agents["n1"] = a
			if actions := w.pass(time.Second); !has(actions, RestoreState) {
				t.Errorf("not set again: %v", actions)
			}
		})
	}
}

// A broker that was away while its own boot ended and an administrator's was asked for and issued sees only the reason: Slurm
// adds to it that the boot is issued, so it was there before.
func TestAnotherBootIsIssued(t *testing.T) {
	for name, c := range map[string]struct {
		first, then string
		rebooted    bool
	}{
		"by an administrator":        {"kprof: mitgcm@3 for job 7 : reboot issued", "kernel update : reboot issued", true},
		"a drain after ours":         {"kprof: mitgcm@3 for job 7 : reboot issued", "bad DIMM", false},
		"a drain before ours, twice": {"bad DIMM : reboot issued", "bad DIMM : reboot issued", false},
	} {
		w := running(t)
		off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", c.first)
		homeAndSeen(w)
		if n := w.nodes["n1"]; n.Slurm.Awaited.Owner != kb.OwnerBroker {
			t.Fatalf("%s: not issued: %+v", name, n)
		}
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", c.then)
		actions := w.pass(time.Second)
		if n := w.nodes["n1"]; n.Slurm.Armed() == c.rebooted || (n.Reboot != nil) != c.rebooted || has(actions, RestoreState) == c.rebooted {
			t.Errorf("%s: armed %v, reboot %+v, %v", name, n.Slurm.Armed(), n.Reboot, actions)
		}
	}
}

// A drain that ends by itself has that end again after the return; one whose end came meanwhile is not set again.
func TestDrainThatEndsByItself(t *testing.T) {
	for left, restored := range map[time.Duration]bool{time.Hour: true, 2 * time.Second: false} {
		w := running(t)
		until := w.now.Add(left)
		w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM")
		n := w.slurm.Nodes["n1"]
		n.ResumeAfter = until
		w.slurm.Nodes["n1"] = n
		w.settle()
		if said := w.nodes["n1"].Slurm.Restore; said == nil || !said.Until.Equal(until) {
			t.Fatalf("%v: %+v", left, said)
		}
		off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "bad DIMM : reboot issued")
		w.now = w.now.Add(3 * time.Second)
		actions := homeAndSeen(w)
		at := slices.IndexFunc(actions, func(a Action) bool { return a.Kind == RestoreState })
		if restored != (at >= 0) || restored && !actions[at].Until.Equal(until) {
			t.Errorf("%v: %v; the record has %+v", left, actions, w.nodes["n1"].Slurm.Restore)
		}
	}
}
