// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var board = kb.Hardware{Board: "Dell-Inc.-PowerEdge-R640", Firmware: "2.10.2", NIC: "mlx4_core@15b3:1003"}

// shows gives a node's agent hardware, and a kernel that has run for a while.
func (w *world) shows(name string, h kb.Hardware, up time.Duration) {
	a := w.agents[name]
	a.Inventory.Hardware, a.Boot.Up = h, up
	w.agents[name] = a
}

// A boot in the ledger has the hardware that stock showed, and the time of each phase.
func TestTryHasItsPhases(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "IDLE", "")
	w.boot("n1", kernels[0], "")
	w.shows("n1", board, time.Hour)
	w.settle()
	w.slurmd("n1")
	w.settle()
	w.job(7, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.ensure(7, mit, "n1")
	w.settle()
	w.now = w.now.Add(3 * time.Second)
	w.report("n1", kb.ProgressLoaded, "", "")
	w.settle()
	w.now = w.now.Add(time.Second)
	// To a newer desired state the agent announces the same boot again.
	for _, again := range []kb.Progress{kb.ProgressBooting, kb.ProgressLoaded, kb.ProgressBooting} {
		w.report("n1", again, "", "")
		w.settle()
	}
	w.silence("n1")
	w.pass(20 * time.Second)
	w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
	w.shows("n1", kb.Hardware{}, 8*time.Second) // that kernel has no DMI
	w.settle()
	want := kb.Try{Node: "n1", Hardware: board, Kernel: mit, Way: kb.WaySwitch, OK: true, At: w.now,
		Times: kb.BootTimes{Load: 3 * time.Second, Stop: time.Second, Shutdown: 12 * time.Second, Start: 8 * time.Second}}
	if len(w.tries) != 1 || w.tries[0] != want {
		t.Errorf("tries %+v", w.tries)
	}
	events := ""
	for _, e := range w.allocs[kb.JobID{Job: 7}].Timeline {
		if e.Event == "started" && !e.At.Equal(w.now.Add(-8*time.Second)) {
			t.Errorf("started at %v, now is %v", e.At, w.now)
		}
		events += e.Event + " "
	}
	if !strings.Contains(events, "loaded kexec started booted attested") {
		t.Errorf("timeline %s", events)
	}
}

// What this broker did not see is not known: an older agent says nothing of its kernel's age, and a broker that was
// away saw nothing.
func TestUnseenPhasesAreNotKnown(t *testing.T) {
	for name, change := range map[string]func(*world, *Input){
		"an older agent":     func(w *world, _ *Input) { w.shows("n1", board, 0) },
		"a broker was away":  func(w *world, in *Input) { in.Began = w.now },
		"an older broker":    func(w *world, in *Input) { in.Nodes["n1"].Pending.Begun = time.Time{} },
		"never heard loaded": func(w *world, in *Input) { in.Nodes["n1"].Pending.Loaded = time.Time{} },
	} {
		w := booting(t)
		w.now = w.now.Add(10 * time.Second)
		w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
		w.shows("n1", board, 4*time.Second)
		in := w.input()
		change(w, &in)
		out := Decide(in)
		if len(out.Tries) != 1 || !out.Tries[0].OK || out.Tries[0].Times.Total() >= 0 || out.Tries[0].Times.Start > 0 {
			t.Errorf("%s: %+v", name, out.Tries)
		}
	}
}

// A load that fails has booted nothing, and a reset in mid-load has not either.
func TestLoadsAreNoTries(t *testing.T) {
	w := switching(t)
	w.report("n1", kb.ProgressFailed, kb.FailureNode, "no space left on device")
	w.settle()
	v := switching(t)
	v.boot("n1", kernels[0], "")
	v.settle()
	if len(w.tries)+len(v.tries) > 0 {
		t.Errorf("tries %+v and %+v", w.tries, v.tries)
	}
}

// A machine that boots stock by its firmware in place of the kexec that was asked for is back, and the kexec has failed.
func TestReturnByFirmwareIsAFailedKexec(t *testing.T) {
	w := returns(t)
	w.report("n1", kb.ProgressBooting, "", "")
	w.settle()
	w.silence("n1")
	w.boot("n1", kernels[0], "")
	w.settle()
	if last := w.tries[len(w.tries)-1]; !w.nodes["n1"].Steady() || last.OK || last.Way != kb.WayReturn || last.Kernel != mit {
		t.Errorf("n1 is %s, try %+v", w.nodes["n1"].Progress(), last)
	}
}

// A broker before this one had a node reset for its return: its record has neither the way nor the kernel that was left.
func TestOlderRecordsGoOn(t *testing.T) {
	w := returns(t)
	w.config.CanReset = true
	p := w.nodes["n1"].Pending
	*p = kb.Pending{Kernel: p.Kernel, Token: p.Token, PrevBootID: p.PrevBootID, Progress: kb.ProgressReset, Generation: p.Generation, Since: w.now}
	w.nodes["n1"].Hardware = kb.Hardware{}
	if actions := w.settle(); !has(actions, ResetNode) {
		t.Errorf("actions %v", actions)
	}
	w.reset("n1")
	w.settle()
	before := len(w.tries)
	w.boot("n1", kernels[0], "")
	if w.settle(); !w.nodes["n1"].Steady() || len(w.tries) != before {
		t.Errorf("n1 is %s, tries %+v", w.nodes["n1"].Progress(), w.tries)
	}
}

// An agent that is upgraded while its node stays up is the first to report hardware: rules hold from then on.
func TestUpgradedAgentReportsHardware(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "IDLE", "")
	w.boot("n1", kernels[0], "")
	w.settle()
	w.rules = []kb.HardwareRule{{Name: "never", Board: "Dell*", Kexec: kb.KexecNever, By: kb.WayReboot}}
	w.shows("n1", board, time.Hour)
	w.settle()
	w.job(7, "CONFIGURING", true, "n1")
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.ensure(7, mit, "n1")
	w.settle()
	if n := w.nodes["n1"]; n.Hardware != board || n.Pending != nil {
		t.Errorf("hardware %+v, pending %+v", n.Hardware, n.Pending)
	}
}

// A rule that is set while a node loads holds for that load: its kexec has not been acknowledged. One that is set after
// that holds from the next boot on.
func TestRuleDuringALoad(t *testing.T) {
	never := kb.HardwareRule{Name: "never", Board: "Dell*", Kexec: kb.KexecNever, By: kb.WayReboot}
	for _, progress := range []kb.Progress{kb.ProgressLoading, kb.ProgressLoaded, kb.ProgressBooting} {
		begun := progress == kb.ProgressBooting
		w := switching(t)
		w.nodes["n1"].Hardware = board
		w.report("n1", progress, "", "")
		w.settle()
		w.rules = []kb.HardwareRule{never}
		out := w.decide()
		if n := w.nodes["n1"]; (n.Pending != nil) != begun || (n.Failure == nil) != begun {
			t.Errorf("%s, a switch: pending %+v, failure %+v", progress, n.Pending, n.Failure)
		}
		w.settle()
		w = returns(t)
		w.nodes["n1"].Hardware = board
		w.report("n1", progress, "", "")
		w.settle()
		w.rules = []kb.HardwareRule{never, {Name: "once", Node: "n1", Kexec: kb.KexecNoReturn, By: kb.WayReboot, Once: true}}
		out = w.decide()
		if p := w.nodes["n1"].Pending; p == nil || (p.Way == kb.WayReboot) == begun || len(out.UsedRules) > 0 == begun {
			t.Errorf("%s, a return: pending %+v, used %v", progress, p, out.UsedRules)
		}
		if generation := w.nodes["n1"].Generation; !begun {
			if w.settle(); w.nodes["n1"].Generation != generation || w.nodes["n1"].Pending.Way != kb.WayReboot {
				t.Errorf("%s, a return that a rule rules out begins again: %+v", progress, w.nodes["n1"].Pending)
			}
		}
	}
}

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		rule     kb.HardwareRule
		canReset bool
		want     kb.Way
	}{
		"none":                      {kb.HardwareRule{Board: "HPE*", Kexec: kb.KexecNoReturn, By: kb.WayReboot}, true, ""},
		"board":                     {kb.HardwareRule{Board: "Dell*R640", Kexec: kb.KexecNoReturn, By: kb.WayReboot}, true, kb.WayReboot},
		"never, by reset":           {kb.HardwareRule{Board: "*", Kexec: kb.KexecNever, By: kb.WayReset}, true, kb.WayReset},
		"by reset, without one":     {kb.HardwareRule{Board: "*", Kexec: kb.KexecNoReturn, By: kb.WayReset}, false, kb.WayReboot},
		"the kernel that it left":   {kb.HardwareRule{Kernel: "mitgcm", Kexec: kb.KexecNoReturn, By: kb.WayReboot}, true, kb.WayReboot},
		"another kernel":            {kb.HardwareRule{Kernel: "lammps", Kexec: kb.KexecNoReturn, By: kb.WayReboot}, true, ""},
		"another version":           {kb.HardwareRule{Kernel: "mitgcm@2", Kexec: kb.KexecNoReturn, By: kb.WayReboot}, true, ""},
		"another node":              {kb.HardwareRule{Node: "n2", Kexec: kb.KexecNoReturn, By: kb.WayReboot}, true, ""},
		"adapter, but not the BIOS": {kb.HardwareRule{NIC: "mlx4*", Firmware: "2.11.*", Kexec: kb.KexecNoReturn, By: kb.WayReboot}, true, ""},
	} {
		w := running(t)
		w.nodes["n1"].Hardware = board
		w.rules, w.config.CanReset = []kb.HardwareRule{c.rule}, c.canReset
		delete(w.slurm.Jobs, 7)
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
		w.settle()
		w.pass(time.Second)
		w.pass(time.Second)
		if p := w.nodes["n1"].Pending; p == nil || p.Way != c.want {
			t.Errorf("%s: pending %+v", name, p)
		}
	}
}

// A rule that has nodes reset first has the node end what runs on it: its own reboot delivers results, stops services
// and writes disks back.
func TestResetByARuleComesAfterTheNodesOwnEnd(t *testing.T) {
	byReset := []kb.HardwareRule{{Name: "slow", Board: "*", Kexec: kb.KexecNoReturn, By: kb.WayReset}}
	begin := func() (*world, []Action) {
		w := running(t)
		w.nodes["n1"].Hardware = board
		w.rules, w.config.CanReset = byReset, true
		delete(w.slurm.Jobs, 7)
		w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
		w.settle()
		actions := w.pass(time.Second)
		return w, append(actions, w.pass(time.Second)...)
	}
	w, actions := begin()
	if n := w.nodes["n1"]; has(actions, ResetNode) || n.Progress() != kb.ProgressBooting {
		t.Fatalf("its agent is there, and it is %s: %v", n.Progress(), actions)
	}
	w.silence("n1")
	if actions = w.pass(unmountTime / 2); has(actions, ResetNode) {
		t.Error("reset while its file systems are unmounted")
	}
	if actions = w.pass(unmountTime); !has(actions, ResetNode) {
		t.Errorf("not reset after its end: %v", actions)
	}

	w, _ = begin()
	w.silence("n1")
	w.pass(time.Second)
	w.boot("n1", kernels[0], "")
	w.settle()
	if n := w.nodes["n1"]; n.Pending != nil || len(w.tries) == 0 || w.tries[len(w.tries)-1].Way != kb.WayReboot || !w.tries[len(w.tries)-1].OK {
		t.Errorf("it came back by its own reboot: pending %+v, tries %+v", n.Pending, w.tries)
	}

	w, _ = begin()
	w.report("n1", kb.ProgressFailed, kb.FailureNode, "the reboot failed: no systemctl")
	if actions = w.settle(); !has(actions, ResetNode) {
		t.Errorf("it cannot reboot, and is not reset: %v", actions)
	}

	w, _ = begin()
	if actions = w.pass(rebootBegins + time.Second); !has(actions, ResetNode) {
		t.Errorf("its reboot hangs, and it is not reset: %v", actions)
	}
}
