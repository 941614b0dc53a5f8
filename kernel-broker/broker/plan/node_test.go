// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestReports(t *testing.T) {
	for _, c := range []struct {
		name   string
		report kb.SwitchReport
		phase  kb.Progress
		kind   kb.FailureKind
	}{
		{"fetching", kb.SwitchReport{Progress: kb.ProgressLoading}, "loading", ""},
		{"loaded", kb.SwitchReport{Progress: kb.ProgressLoaded}, "loading", ""},
		{"the last word", kb.SwitchReport{Progress: kb.ProgressBooting}, "booting", ""},
		{"given up, the node's fault", kb.SwitchReport{Progress: kb.ProgressFailed, Kind: kb.FailureNode}, "failed", kb.FailureNode},
		{"given up, the kernel's fault", kb.SwitchReport{Progress: kb.ProgressFailed, Kind: kb.FailureKernel}, "failed", kb.FailureKernel},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := switching(t)
			stale := c.report
			stale.Generation = w.nodes["n1"].Pending.Generation - 1
			a := w.agents["n1"]
			a.Reports = []kb.SwitchReport{stale}
			w.agents["n1"] = a
			w.settle()
			if phase := w.nodes["n1"].Progress(); phase != "loading" {
				t.Errorf("a report on an older wish makes it %s", phase)
			}
			w.report("n1", c.report.Progress, c.report.Kind, "words")
			w.decide()
			n := w.nodes["n1"]
			if n.Progress() != c.phase {
				t.Errorf("n1 is %s, want %s", n.Progress(), c.phase)
			}
			if n.Failure != nil && (n.Failure.Kind != c.kind || n.Failure.Cause != "words" || n.Failure.Ref != mit) {
				t.Errorf("failure %+v", n.Failure)
			}
		})
	}
}

func TestReportsWithoutABoot(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.report("n1", kb.ProgressFailed, kb.FailureKernel, "late words")
	w.settle()
	if n := w.nodes["n1"]; !n.Steady() {
		t.Errorf("n1 is %s", n.Progress())
	}
}

func TestOverdueLoading(t *testing.T) {
	w := switching(t)
	w.pass(w.config.LoadLimit)
	if phase := w.nodes["n1"].Progress(); phase != "loading" {
		t.Fatalf("n1 is %s at the limit", phase)
	}
	w.now = w.now.Add(time.Second)
	w.decide()
	f := w.nodes["n1"].Failure
	if f == nil || f.Kind != kb.FailureNode || f.Cause != "not loaded within 2m0s" {
		t.Errorf("failure %+v", f)
	}
}

func TestHangWithoutReset(t *testing.T) {
	w := booting(t)
	w.pass(time.Minute)
	if phase := w.nodes["n1"].Progress(); phase != "booting" {
		t.Fatalf("n1 is %s at the limit", phase)
	}
	w.now = w.now.Add(time.Second)
	out := w.decide()
	n := w.nodes["n1"]
	if n.Failure == nil || n.Failure.Kind != kb.FailureNode || len(n.Faults) != 1 || has(out.Actions, ResetNode) {
		t.Errorf("failure %+v, faults %+v, actions %v", n.Failure, n.Faults, out.Actions)
	}
}

func TestHangWithReset(t *testing.T) {
	for _, back := range []bool{true, false} {
		w := booting(t)
		w.config.CanReset = true
		w.now = w.now.Add(61 * time.Second)
		if out := w.decide(); !has(out.Actions, ResetNode) || w.nodes["n1"].Pending.Progress != kb.ProgressReset {
			t.Fatalf("actions %v, pending %+v", out.Actions, w.nodes["n1"].Pending)
		}
		if actions := w.settle(); !has(actions, ResetNode) {
			t.Error("the reset is not asked for until it is done")
		}
		w.reset("n1")
		if actions := w.settle(); has(actions, ResetNode) || !w.nodes["n1"].Pending.ResetAt.Equal(w.now) {
			t.Errorf("one hang, two resets; pending %+v", w.nodes["n1"].Pending)
		}
		if actions := w.settle(); has(actions, ResetNode) {
			t.Error("one hang, two resets")
		}
		if back {
			w.boot("n1", kernels[0], "")
			w.decide()
			if n := w.nodes["n1"]; n.Progress() != "loading" || len(n.Faults) != 1 || n.Attempts != 1 {
				t.Errorf("after the reset n1 is %s with faults %+v, try %d", n.Progress(), n.Faults, n.Attempts)
			}
			continue
		}
		w.now = w.now.Add(w.config.ResetGrace + time.Second)
		w.decide()
		if n := w.nodes["n1"]; n.Failure == nil || n.Failure.Cause != "no sign of life after a reset" || len(n.Faults) != 1 {
			t.Errorf("failure %+v, faults %+v", n.Failure, n.Faults)
		}
	}
}

// A machine takes as long to come back from a reset as from its own reboot: both go through its firmware.
func TestResetHasTheTimeOfAReboot(t *testing.T) {
	for _, c := range []struct{ grace, reboot, want time.Duration }{
		{2 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		{20 * time.Minute, 10 * time.Minute, 20 * time.Minute},
		{Defaults().ResetGrace, Defaults().RebootTimeout, Defaults().RebootTimeout},
	} {
		w := booting(t)
		w.config.CanReset, w.config.ResetGrace, w.config.RebootTimeout = true, c.grace, c.reboot
		w.pass(61 * time.Second)
		w.reset("n1")
		w.settle()
		if w.pass(c.want); w.nodes["n1"].Failure != nil {
			t.Errorf("%v, %v: given up after %v: %+v", c.grace, c.reboot, c.want, w.nodes["n1"].Failure)
		}
		if w.pass(time.Second); w.nodes["n1"].Failure == nil {
			t.Errorf("%v, %v: not given up after more than %v", c.grace, c.reboot, c.want)
		}
	}
}

// A reset that fails is tried again as long as a node may take to come back.
func TestResetFails(t *testing.T) {
	w := booting(t)
	w.config.CanReset = true
	if actions := w.pass(61 * time.Second); !has(actions, ResetNode) {
		t.Fatalf("actions %v", actions)
	}
	if actions := w.pass(w.config.ResetGrace); !has(actions, ResetNode) {
		t.Errorf("actions %v", actions)
	}
	w.now = w.now.Add(time.Second)
	w.decide()
	if n := w.nodes["n1"]; n.Failure == nil || n.Failure.Cause != "no sign of life, and it cannot be reset" || len(n.Faults) != 1 {
		t.Errorf("failure %+v, faults %+v", n.Failure, n.Faults)
	}
}

// A broker that was killed over a reset does not know whether it was done. It
// gives the node the time to come back, and then asks again.
func TestResetAfterRestart(t *testing.T) {
	for _, done := range []bool{false, true} {
		w := booting(t)
		w.config.CanReset = true
		w.pass(61 * time.Second)
		if done {
			w.reset("n1")
			w.settle()
		}
		token := w.nodes["n1"].Pending.Token
		w.now = w.now.Add(time.Hour)
		w.silence("n1") // as of the broker's start
		if actions := w.settle(); has(actions, ResetNode) {
			t.Errorf("recorded %v: reset at once: %v", done, actions)
		}
		if actions := w.pass(w.config.ResetGrace - time.Second); has(actions, ResetNode) || w.nodes["n1"].Failure != nil {
			t.Errorf("recorded %v: reset while the node may come back: %v, failure %+v", done, actions, w.nodes["n1"].Failure)
		}
		actions := w.pass(2 * time.Second)
		if failed := w.nodes["n1"].Failure != nil; failed != done || has(actions, ResetNode) == done {
			t.Errorf("recorded %v: actions %v, failed %v", done, actions, failed)
		}
		if done {
			continue
		}
		if n := w.nodes["n1"]; !n.Resettable(token, "") || !n.Resettable(token, n.Pending.PrevBootID) || n.Resettable(token, "another") || n.Resettable("x", "") {
			t.Errorf("whom it may hit: %+v", n.Pending)
		}
		w.boot("n1", kernels[0], "")
		if actions := w.settle(); has(actions, ResetNode) || w.nodes["n1"].Resettable(token, "") {
			t.Errorf("a node that came up would be hit: %v", actions)
		}
	}
}

// A node that hangs on a kernel whose job has left is not given more time than
// the kernel's profile says.
func TestHangWithoutOwner(t *testing.T) {
	w := booting(t)
	w.config.CanReset = true
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE+POWERING_UP", "")
	if w.pass(59 * time.Second); w.nodes["n1"].Progress() != "booting" || !w.nodes["n1"].Owner.IsZero() {
		t.Fatalf("n1 is %s, owner %v", w.nodes["n1"].Progress(), w.nodes["n1"].Owner)
	}
	w.now = w.now.Add(2 * time.Second)
	if out := w.decide(); !has(out.Actions, ResetNode) {
		t.Errorf("actions %v", out.Actions)
	}
}

// A broker that was away for longer than every limit finds its nodes where
// they are, and gives their agents time to dial.
func TestBrokerWasAway(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *world{"loading": switching, "booting": booting} {
		t.Run(name, func(t *testing.T) {
			w := begin(t)
			w.config.SwitchLimit = 2 * time.Hour
			w.now = w.now.Add(time.Hour)
			w.silence("n1") // as of the broker's start
			w.settle()
			if phase := w.nodes["n1"].Progress(); phase.String() != name {
				t.Fatalf("n1 is %s after the broker's start: %+v", phase, w.nodes["n1"].Failure)
			}
			w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
			w.pass(time.Second)
			if n := w.nodes["n1"]; !n.Steady() {
				t.Errorf("n1 is %s", n.Progress())
			}
		})
	}
	t.Run("steady", func(t *testing.T) {
		w := switching(t)
		w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
		w.settle()
		w.config.SwitchLimit = 2 * time.Hour
		w.now = w.now.Add(time.Hour)
		w.silence("n1")
		w.settle()
		if n := w.nodes["n1"]; !n.Steady() {
			t.Fatalf("n1 is %s: %+v", n.Progress(), n.Failure)
		}
		w.now = w.now.Add(w.config.AgentLimit + time.Second)
		w.decide()
		if n := w.nodes["n1"]; n.Failure == nil || n.Failure.Cause != "its agent is silent" {
			t.Errorf("failure %+v", n.Failure)
		}
	})
}

// An agent that lives on the old kernel after its last word stands still.
func TestAgentBackOnTheOldKernel(t *testing.T) {
	w := booting(t)
	a := w.agents["n1"]
	a = Agent{Connected: true, Since: w.now, Boot: w.nodes["n1"].Boot, Inventory: a.Inventory}
	w.agents["n1"] = a
	w.settle()
	n := w.nodes["n1"]
	if n.Pending == nil || n.Pending.Token == "" {
		t.Fatalf("the boot is forgotten: %+v", n)
	}
	w.report("n1", kb.ProgressFailed, kb.FailureNode, "kexec: EPERM")
	w.decide()
	if n := w.nodes["n1"]; n.Failure == nil || n.Failure.Cause != "kexec: EPERM" {
		t.Errorf("failure %+v", n.Failure)
	}
}

func TestWaiting(t *testing.T) {
	w := steadyOnStock(t, "n1")
	start := w.nodes["n1"].SlurmdStart
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.settle()
	n := w.nodes["n1"]
	if !n.Slurm.Awaited.Awaits() || n.SlurmdStart != start || !n.Told.SlurmdNotBefore.Equal(w.now.Truncate(time.Second).Add(w.config.RegisterDelay)) {
		t.Errorf("waiting %v, start %d, not before %v", n.Slurm.Awaited, n.SlurmdStart, n.Told.SlurmdNotBefore)
	}
	delete(w.slurm.Nodes, "n1") // not seen is not known
	w.pass(time.Second)
	if n := w.nodes["n1"]; !n.Slurm.Awaited.Awaits() || n.SlurmdStart != start {
		t.Errorf("waiting %v, start %d", n.Slurm.Awaited, n.SlurmdStart)
	}
	w.node("n1", "ALLOCATED", "")
	w.settle()
	if w.nodes["n1"].Slurm.Awaited.Awaits() {
		t.Error("still waiting")
	}
}

// A slurmd from before the request is started anew, but only once Slurm was
// seen to wait still when a registration counts: within the second of the
// request slurmctld may take the old one, and then another is a crash to it.
func TestRegisterAnew(t *testing.T) {
	w := steadyOnStock(t, "n1")
	start := w.nodes["n1"].SlurmdStart
	w.node("n1", "IDLE+POWERING_UP", "")
	w.settle()
	if got := w.nodes["n1"].SlurmdStart; got != start {
		t.Fatalf("start %d within the second of the request", got)
	}
	in := w.input()
	in.Now = w.now.Add(time.Minute) // it is late, but the poll is an old one
	if out := Decide(in); len(out.Nodes) > 0 && out.Nodes[0].SlurmdStart != start {
		t.Errorf("slurmd is restarted on an old poll: %+v", out.Nodes[0])
	}
	w.pass(w.config.RegisterDelay + time.Second)
	if got := w.nodes["n1"].SlurmdStart; got != start+1 {
		t.Errorf("start %d, want %d", got, start+1)
	}
}

func TestRegisterNotAnewOnceHeard(t *testing.T) {
	w := steadyOnStock(t, "n1")
	start := w.nodes["n1"].SlurmdStart
	w.node("n1", "IDLE+POWERING_UP", "")
	w.settle()
	w.node("n1", "IDLE", "")
	w.pass(w.config.RegisterDelay + time.Second)
	if got := w.nodes["n1"].SlurmdStart; got != start {
		t.Errorf("start %d: slurmctld would see a node that rebooted", got)
	}
}

// A node that waits for a job which has not come to the broker yet must not
// register: the boot to the job's kernel is still to come.
func TestRegisterNotBeforeTheJobHasCome(t *testing.T) {
	w := steadyOnStock(t, "n1")
	start := w.nodes["n1"].SlurmdStart
	w.now = w.now.Add(time.Hour) // slurmd has long been there
	w.job(7, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.settle()
	if got := w.nodes["n1"].SlurmdStart; got != start {
		t.Errorf("start %d at once", got)
	}
	w.pass(w.config.AgentLimit)
	if got := w.nodes["n1"].SlurmdStart; got != start {
		t.Errorf("start %d before the job has come", got)
	}
	w.pass(w.config.RegisterDelay)
	if got := w.nodes["n1"].SlurmdStart; got != start+1 {
		t.Errorf("start %d, want %d: the job does not come any more", got, start+1)
	}
}

func TestRegisterTriesAgain(t *testing.T) {
	w := steadyOnStock(t, "n1")
	w.node("n1", "IDLE+POWERING_UP", "")
	w.settle()
	w.pass(w.config.RegisterDelay + time.Second)
	w.slurmd("n1")
	start := w.nodes["n1"].SlurmdStart
	// A poll of too early proves nothing, however late it is now: slurmctld
	// may have the registration, and a second one would be a crash to it.
	in := w.input()
	in.Slurm.At, in.Now = w.now.Add(time.Second), w.now.Add(time.Minute)
	if out := Decide(in); len(out.Nodes) > 0 {
		t.Errorf("slurmd is restarted on an old poll: %+v", out.Nodes[0])
	}
	w.pass(w.config.RegisterRetry)
	if got := w.nodes["n1"].SlurmdStart; got != start {
		t.Errorf("start %d before its time", got)
	}
	w.pass(time.Second)
	if got := w.nodes["n1"].SlurmdStart; got != start+1 {
		t.Errorf("start %d, want %d", got, start+1)
	}
	w.pass(time.Minute)
	if got := w.nodes["n1"].SlurmdStart; got != start+1 {
		t.Error("started anew before the agent did what it was told")
	}
}

func TestRecover(t *testing.T) {
	t.Run("kernel's fault, the job leaves", func(t *testing.T) {
		w := switching(t)
		w.report("n1", kb.ProgressFailed, kb.FailureKernel, "no driver")
		actions := w.settle()
		if !has(actions, HoldJob) || has(actions, DrainNode) {
			t.Errorf("actions %v", actions)
		}
		delete(w.slurm.Jobs, 7)
		w.node("n1", "IDLE+POWERING_UP", "")
		w.pass(time.Second)
		w.pass(time.Second)
		if n := w.nodes["n1"]; !n.Steady() || !n.Desired.IsStock() {
			t.Errorf("n1 is %s and wants %s", n.Progress(), n.Desired)
		}
	})
	t.Run("node's fault, drained and resumed", func(t *testing.T) {
		w := switching(t)
		w.node("n1", "ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", "kprof: x")
		w.report("n1", kb.ProgressFailed, kb.FailureNode, "disk full")
		if actions := w.settle(); !has(actions, Disarm) || has(actions, DrainNode) || has(actions, ArmReturn) {
			t.Errorf("an armed node: %v", actions)
		}
		delete(w.slurm.Jobs, 7)
		w.node("n1", "IDLE+POWERING_UP", "")
		if actions := w.pass(time.Second); !has(actions, DrainNode) || has(actions, ArmReturn) {
			t.Errorf("a disarmed node: %v", actions)
		}
		w.node("n1", "IDLE+DRAIN", "kernel-broker: mitgcm@3: disk full")
		if actions := w.pass(time.Second); len(actions) > 0 || w.nodes["n1"].Failure == nil {
			t.Errorf("a drained node: %v, failure %v", actions, w.nodes["n1"].Failure)
		}
		w.node("n1", "IDLE+DRAIN", "waits for its new disk")
		if actions := w.pass(time.Second); len(actions) > 0 || w.nodes["n1"].Failure == nil {
			t.Errorf("the administrator has it: %v, failure %v", actions, w.nodes["n1"].Failure)
		}
		w.node("n1", "IDLE", "")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Failure != nil || drained(n) || !n.Desired.IsStock() {
			t.Errorf("resumed: %+v", n)
		}
	})
	t.Run("drained, and resumed before a restarted slurmctld has heard from it", func(t *testing.T) {
		w := failedOnItsOwn(t)
		w.node("n1", "UNKNOWN+DRAIN+REBOOT_ISSUED+POWERING_UP", "kernel-broker: mitgcm@3: disk full")
		w.pass(time.Second)
		w.node("n1", "UNKNOWN+NOT_RESPONDING+POWERING_UP", "")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Failure != nil || drained(n) {
			t.Errorf("resumed: %+v", n)
		}
	})
	t.Run("resumed while the broker was away, and then set down by Slurm for the boot of its job", func(t *testing.T) {
		w := failedOnItsOwn(t)
		w.node("n1", "DOWN", "ResumeTimeout reached")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Failure != nil || drained(n) {
			t.Errorf("resumed: %+v", n)
		}
	})
	t.Run("drained, and set down by an administrator", func(t *testing.T) {
		w := failedOnItsOwn(t)
		w.node("n1", "DOWN", "waits for its new disk")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Failure == nil {
			t.Errorf("taken for resumed: %+v", n)
		}
	})
	t.Run("the registration of an armed boot ends the drain", func(t *testing.T) {
		w := failedOnItsOwn(t)
		w.nodes["n1"].Failure.Drained = false
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kernel-broker: mitgcm@3: disk full")
		w.pass(time.Second)
		w.node("n1", "IDLE", "")
		w.pass(time.Second)
		if actions := w.pass(time.Second); !has(actions, DrainNode) || w.nodes["n1"].Failure == nil {
			t.Errorf("in service again without an administrator: %v, failure %v", actions, w.nodes["n1"].Failure)
		}
		w.node("n1", "IDLE+DRAIN", "kernel-broker: mitgcm@3: disk full")
		w.pass(time.Second)
		w.node("n1", "IDLE", "")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Failure != nil {
			t.Errorf("resumed by an administrator: %+v", n)
		}
	})
	t.Run("an armed node that an administrator resumes", func(t *testing.T) {
		w := failedOnItsOwn(t)
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kernel-broker: mitgcm@3: disk full")
		w.pass(time.Second)
		w.node("n1", "IDLE+NOT_RESPONDING", "")
		w.pass(time.Second)
		if n := w.nodes["n1"]; n.Failure != nil {
			t.Errorf("%+v", n)
		}
	})
	t.Run("slurmd of a failed node answers until Slurm has its boot", func(t *testing.T) {
		w := failedOnItsOwn(t)
		w.node("n1", "UNKNOWN+DRAIN+REBOOT_ISSUED+POWERING_UP", "kernel-broker: mitgcm@3: disk full")
		w.pass(w.config.RegisterDelay + time.Second)
		w.slurmd("n1")
		start := w.nodes["n1"].SlurmdStart
		w.pass(w.config.RegisterRetry + time.Second)
		if got := w.nodes["n1"].SlurmdStart; got != start+1 {
			t.Errorf("start %d, want %d", got, start+1)
		}
	})
}

// failedOnItsOwn is a world with a node that could not load its job's kernel. The job has left it.
func failedOnItsOwn(t *testing.T) *world {
	t.Helper()
	w := switching(t)
	w.report("n1", kb.ProgressFailed, kb.FailureNode, "disk full")
	w.settle()
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE+DRAIN+POWERING_UP", "kernel-broker: mitgcm@3: disk full")
	w.pass(time.Second)
	if w.nodes["n1"].Failure == nil {
		t.Fatal("the node has not failed")
	}
	return w
}
