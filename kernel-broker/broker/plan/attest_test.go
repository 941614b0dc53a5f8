// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestVerdict(t *testing.T) {
	node := &kb.Node{Name: "n1", Issued: []kb.Issued{
		{Token: "fresh", Ref: mit, BuildID: "mitgcm-3"},
		{Token: "used", Ref: mit, BuildID: "mitgcm-3", BootID: "boot-1"},
		{Token: "modules", Ref: mit, BuildID: "mitgcm-3", Modules: "sha256:aa"},
	}}
	for _, c := range []struct {
		name    string
		boot    kb.Boot
		ref     kb.Ref
		problem string
	}{
		{"a fresh token with its kernel", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3", Token: "fresh"}, mit, ""},
		{"the boot that used the token, again", kb.Boot{BootID: "boot-1", BuildID: "mitgcm-3", Token: "used"}, mit, ""},
		{"another boot replays the token", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3", Token: "used"}, kb.Ref{}, "its one-time token was used by another boot"},
		{"the token with another kernel", kb.Boot{BootID: "boot-2", BuildID: "evil", Token: "fresh"}, kb.Ref{}, "build id evil runs, mitgcm-3 was loaded"},
		{"the token with no build id", kb.Boot{BootID: "boot-2", Token: "fresh"}, kb.Ref{}, "build id  runs, mitgcm-3 was loaded"},
		{"a token of nobody's", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3", Token: "forged"}, kb.Ref{}, "its token was not issued by this broker"},
		{"a token of nobody's on stock", kb.Boot{BootID: "boot-2", BuildID: "stock-1", Token: "forged"}, kb.Ref{}, "its token was not issued by this broker"},
		{"its modules are loaded", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3", Token: "modules", Modules: "sha256:aa"}, mit, ""},
		{"its modules are not", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3", Token: "modules", ModulesFault: "no key"}, kb.Ref{}, "its modules could not be loaded: no key"},
		{"an agent that knows of no modules", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3", Token: "modules"}, kb.Ref{}, `modules "" are loaded, "sha256:aa" belong to it`},
		{"other modules are loaded", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3", Token: "modules", Modules: "sha256:bb"}, kb.Ref{}, `modules "sha256:bb" are loaded, "sha256:aa" belong to it`},
		{"modules for a kernel without any", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3", Token: "fresh", Modules: "sha256:aa"}, kb.Ref{}, `modules "sha256:aa" are loaded, "" belong to it`},
		{"firmware booted stock", kb.Boot{BootID: "boot-2", BuildID: "stock-1"}, stock, ""},
		{"firmware booted a kernel that nobody knows", kb.Boot{BootID: "boot-2", BuildID: "site-own"}, kb.Ref{Profile: "stock"}, ""},
		{"a profile's kernel without a token", kb.Boot{BootID: "boot-2", BuildID: "mitgcm-3"}, kb.Ref{}, `kernel of profile "mitgcm@3" runs without a token`},
	} {
		t.Run(c.name, func(t *testing.T) {
			proof, problem := proofOf(&fakeCatalog{}, node, c.boot)
			if proof.Ref != c.ref || problem != c.problem {
				t.Errorf("proofOf = %v, %q; want %v, %q", proof.Ref, problem, c.ref, c.problem)
			}
			if (problem == "") != (proof.BootID == c.boot.BootID) {
				t.Errorf("proof of boot %q with problem %q", proof.BootID, problem)
			}
		})
	}
}

func TestTokenProvesOneBootOnly(t *testing.T) {
	w := booting(t)
	token := w.nodes["n1"].Pending.Token
	w.boot("n1", kernels[1], token)
	w.settle()
	if n := w.nodes["n1"]; !n.Steady() || n.Kexecs != 1 {
		t.Fatalf("n1 is %s after %d kexecs", n.Progress(), n.Kexecs)
	}
	// The same command line comes up once more, after a crash.
	w.boot("n1", kernels[1], token)
	w.settle()
	if n := w.nodes["n1"]; n.Running.Ref != (kb.Ref{}) || n.Steady() {
		t.Errorf("a replayed token proves %v, the node is %s", n.Running.Ref, n.Progress())
	}
}

// The catalog may learn of a node's kernel after the node said hello.
func TestProofComesLater(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "IDLE", "")
	w.boot("n1", kernels[1], "")
	w.settle()
	if w.nodes["n1"].Running.Ref != (kb.Ref{}) {
		t.Fatalf("proven: %+v", w.nodes["n1"].Running)
	}
	generation := w.nodes["n1"].Generation
	kernels = append(kernels, kb.Kernel{Profile: "stock", Version: 2, BuildID: "mitgcm-3"})
	defer func() { kernels = kernels[:3] }()
	w.settle()
	if n := w.nodes["n1"]; !n.Steady() || n.Generation == generation {
		t.Errorf("n1 is %s, generation %d", n.Progress(), n.Generation)
	}
}

// What became of a boot, by how far it was and by what came up.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name     string
		executed bool
		attempts uint32
		up       kb.Kernel
		token    bool
		phase    kb.Progress
		faults   int
		failure  kb.FailureKind
	}{
		{"the kernel came up", true, 2, kernels[1], true, "steady", 0, ""},
		{"a panic, a try left", true, 2, kernels[0], false, "loading", 1, ""},
		{"a panic, no try left", true, 1, kernels[0], false, "failed", 1, kb.FailureKernel},
		{"another kernel with the token", true, 1, kernels[2], true, "failed", 1, kb.FailureKernel},
		{"power lost while it loaded, a try left", false, 2, kernels[0], false, "loading", 0, ""},
		{"power lost while it loaded, no try left", false, 1, kernels[0], false, "failed", 0, kb.FailureNode},
		{"the last word was lost, the kernel came up", false, 1, kernels[1], true, "steady", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := switching(t)
			if c.executed {
				w = booting(t)
			}
			w.allocs[kb.JobID{Job: 7}].BootAttempts = c.attempts
			token := ""
			if c.token {
				token = w.nodes["n1"].Pending.Token
			}
			w.boot("n1", c.up, token)
			w.decide()
			n := w.nodes["n1"]
			if n.Progress() != c.phase || len(n.Faults) != c.faults {
				t.Errorf("n1 is %s with faults %+v; want %s with %d", n.Progress(), n.Faults, c.phase, c.faults)
			}
			if n.Failure != nil && n.Failure.Kind != c.failure {
				t.Errorf("failure %+v, want kind %s", n.Failure, c.failure)
			}
		})
	}
}

func TestFaultIsAskedToBeCountedUntilItIs(t *testing.T) {
	w := booting(t)
	token := w.nodes["n1"].Pending.Token
	w.boot("n1", kernels[0], "")
	w.decide()
	for range 3 {
		if out := w.decide(); !has(out.Actions, CountFault) {
			t.Fatal("a fault that nobody counted is forgotten")
		}
	}
	w.catalog.counted[token] = true
	if out := w.decide(); has(out.Actions, CountFault) || len(w.nodes["n1"].Faults) != 0 {
		t.Error("a counted fault is counted again")
	}
}

// returns is a node that is on its way back to stock.
func returns(t *testing.T) *world {
	t.Helper()
	w := running(t)
	delete(w.slurm.Jobs, 7)
	w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
	w.pass(time.Second) // the end is seen
	w.pass(time.Second) // by a poll that began after it
	if n := w.nodes["n1"]; n.Progress() != "loading" || !n.Desired.IsStock() {
		t.Fatalf("n1 is %s, wants %s", n.Progress(), n.Desired)
	}
	return w
}

// A boot to stock that fails again and again is the node's fault: there is
// nothing else to bring it back to.
func TestReturnFails(t *testing.T) {
	w := returns(t)
	for range w.config.StockAttempts - 1 {
		w.report("n1", kb.ProgressFailed, kb.FailureKernel, "digest differs")
		w.settle()
		w.pass(RetryPause + time.Second)
	}
	w.report("n1", kb.ProgressFailed, kb.FailureKernel, "digest differs")
	w.settle()
	w.report("n1", kb.ProgressFailed, kb.FailureNode, "the reboot failed: no systemctl")
	actions := w.settle()
	if f := w.nodes["n1"].Failure; f == nil || f.Kind != kb.FailureNode {
		t.Fatalf("failure %+v", f)
	}
	if !has(actions, DrainNode) || has(actions, Disarm) {
		t.Errorf("actions %v: Slurm takes no reboot back that it has issued", actions)
	}
	w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kernel-broker: stock@1: digest differs")
	if actions := w.settle(); len(actions) > 0 {
		t.Errorf("a drained node is not left alone: %v", actions)
	}
	if len(w.closed) != 1 {
		t.Errorf("%d allocations closed, want 1", len(w.closed))
	}
}
