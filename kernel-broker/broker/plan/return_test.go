// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// One load that fails on the return costs no node: it is tried again, and not at
// once.
func TestReturnIsTriedAgain(t *testing.T) {
	w := returns(t)
	first := w.nodes["n1"].Pending.Token
	w.report("n1", kb.ProgressFailed, kb.FailureNode, "no space left on device")
	actions := w.decide().Actions
	if !has(actions, CheckImage) || has(actions, DrainNode) {
		t.Errorf("actions %v", actions)
	}
	if w.settle(); w.nodes["n1"].Failure != nil || w.nodes["n1"].Pending != nil {
		t.Fatalf("n1 is %+v", w.nodes["n1"])
	}
	if w.pass(firstRetry - time.Second); w.nodes["n1"].Pending != nil {
		t.Error("tried again too early")
	}
	w.pass(2 * time.Second)
	if p := w.nodes["n1"].Pending; p == nil || p.Token == first || !p.Kernel.Ref().IsStock() {
		t.Fatalf("not tried again: %+v", p)
	}
	w.report("n1", kb.ProgressBooting, "", "")
	w.settle()
	w.boot("n1", kernels[0], w.nodes["n1"].Pending.Token)
	if w.settle(); !w.nodes["n1"].Steady() || w.nodes["n1"].Attempts != 0 {
		t.Errorf("n1 is %+v", w.nodes["n1"])
	}
}

// A node that cannot load stock at all reboots by itself, and is reset from outside if it cannot do that either, which
// brings the firmware's stock. It is drained only if that does not help.
func TestReturnByReset(t *testing.T) {
	for _, helps := range []bool{true, false} {
		w := returns(t)
		w.config.CanReset = true
		var actions []Action
		for range w.config.StockAttempts {
			w.report("n1", kb.ProgressFailed, kb.FailureNode, "no space left on device")
			w.settle()
			actions = w.pass(RetryPause + time.Second)
		}
		if p := w.nodes["n1"].Pending; p == nil || p.Way != kb.WayReboot || has(actions, ResetNode) {
			t.Fatalf("actions %v, pending %+v", actions, p)
		}
		w.report("n1", kb.ProgressFailed, kb.FailureNode, "the reboot failed: no systemctl")
		actions = w.settle()
		p := w.nodes["n1"].Pending
		if !has(actions, ResetNode) || p == nil || !w.nodes["n1"].Resettable(p.Token, w.agents["n1"].Boot.BootID) {
			t.Fatalf("actions %v, pending %+v", actions, p)
		}
		w.report("n1", kb.ProgressFailed, kb.FailureNode, "no space left on device") // said too late
		w.settle()
		w.reset("n1")
		w.settle()
		if helps {
			w.boot("n1", kernels[0], "")
			if w.settle(); !w.nodes["n1"].Steady() {
				t.Errorf("n1 is %+v", w.nodes["n1"])
			}
			continue
		}
		w.silence("n1")
		w.settle()
		if actions := w.pass(w.config.ResetGrace + time.Second); !has(actions, DrainNode) {
			t.Errorf("actions %v, n1 is %+v", actions, w.nodes["n1"])
		}
	}
}

// An image that is damaged in the store drains no node: each goes back by a reboot.
func TestDamagedImageDrainsNoNode(t *testing.T) {
	w := returns(t)
	w.report("n1", kb.ProgressFailed, kb.FailureNode, "digest differs")
	w.settle()
	w.damaged = map[string]string{kernels[0].ImageDigest: "its image is damaged"}
	actions := w.pass(RetryPause + time.Second)
	if p := w.nodes["n1"].Pending; p == nil || p.Way != kb.WayReboot || has(actions, DrainNode) {
		t.Fatalf("actions %v, n1 is %+v", actions, w.nodes["n1"])
	}
	w.boot("n1", kernels[0], "")
	if actions := w.settle(); !w.nodes["n1"].Steady() || has(actions, DrainNode) {
		t.Errorf("actions %v, n1 is %+v", actions, w.nodes["n1"])
	}
}
