// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// takenReboot is a job's switch on a node whose reboot an administrator asked for before, without ASAP: a return is
// armed in its place.
func takenReboot(t *testing.T) *world {
	t.Helper()
	w := steadyOnStock(t, "n1")
	w.node("n1", "ALLOCATED+REBOOT_REQUESTED", "kernel update")
	w.pass(time.Minute)
	w.job(7, "CONFIGURING", true, "n1")
	w.ensure(7, mit, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP+REBOOT_REQUESTED", "kernel update")
	if actions := w.pass(time.Second); !has(actions, Disarm) {
		t.Fatalf("the reboot was not taken: %v", actions)
	}
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	return w
}

// A node that fails in the switch is an administrator's, and so is the reboot.
func TestTakenRebootOfANodeThatFails(t *testing.T) {
	w := takenReboot(t)
	w.pass(time.Second)
	w.node("n1", "ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.pass(time.Second)
	for range 4 { // the tries
		w.report("n1", kb.ProgressFailed, kb.FailureNode, "no space")
		w.pass(time.Minute)
	}
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	if actions := w.pass(time.Minute); !has(actions, Disarm) || w.nodes["n1"].Failure == nil {
		t.Fatalf("%v, %+v", actions, w.nodes["n1"].Failure)
	}
	w.node("n1", "IDLE", "")
	w.pass(time.Minute)
	w.node("n1", "IDLE+DRAIN", "kernel-broker: n1 failed")
	w.pass(time.Minute)
	w.node("n1", "IDLE", "")
	w.pass(time.Minute)
	if n := w.nodes["n1"]; n.Reboot != nil || n.Failure != nil || !n.Steady() {
		t.Errorf("a node that was resumed: reboot %+v, failure %+v, %s", n.Reboot, n.Failure, n.Progress())
	}
}

// A job that leaves between the two commands leaves the reboot to be asked for again.
func TestTakenRebootOfANodeWhoseJobLeaves(t *testing.T) {
	for name, state := range map[string]kb.Progress{"while it loads": kb.ProgressLoading, "in its boot": kb.ProgressBooting} {
		w := takenReboot(t)
		delete(w.slurm.Jobs, 7)
		w.node("n1", "IDLE", "")
		if state == kb.ProgressBooting {
			w.report("n1", state, "", "")
		}
		w.decide() // the job's end and what the agent does come at one time
		if state == kb.ProgressBooting {
			w.silence("n1")
			w.pass(time.Second)
			if p := w.nodes["n1"].Pending; p != nil {
				w.boot("n1", kernels[1], p.Token)
			}
		}
		w.pass(time.Second)
		if actions := w.pass(time.Minute); !has(actions, ArmReturn) {
			t.Errorf("%s: %v; reboot %+v", name, actions, w.nodes["n1"].Reboot)
			continue
		}
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: return : reboot issued")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Reboot == nil || !n.Reboot.Due || n.Pending != nil {
			t.Errorf("%s: reboot %+v, pending %+v", name, n.Reboot, n.Pending)
			continue
		}
		w.boot("n1", kernels[0], "")
		w.pass(time.Second)
		w.node("n1", "IDLE", "")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Reboot != nil || !n.Steady() {
			t.Errorf("%s: reboot %+v, %s", name, n.Reboot, n.Progress())
		}
	}
}
