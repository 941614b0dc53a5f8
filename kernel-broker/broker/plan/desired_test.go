// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A node on a profile's kernel whose job is gone: what Slurm says of it decides
// what becomes of it.
func TestRelease(t *testing.T) {
	for _, c := range []struct {
		name, state, reason string
		job                 kb.SlurmJob // on the node; zero for none
		returns, arms       bool
	}{
		{"the armed reboot was issued", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: x : reboot issued", kb.SlurmJob{}, true, false},
		{"armed and idle", "IDLE+DRAIN+REBOOT_REQUESTED", "kprof: x", kb.SlurmJob{}, true, false},
		{"idle and powering up, after a cancel", "IDLE+POWERING_UP", "", kb.SlurmJob{}, true, false},
		{"down", "DOWN", "Not responding", kb.SlurmJob{}, true, false},
		{"drained by an administrator", "IDLE+DRAIN", "new disk", kb.SlurmJob{}, true, false},
		{"idle and not armed", "IDLE", "", kb.SlurmJob{}, false, true},
		{"its job's epilog runs", "IDLE+COMPLETING+DRAIN+REBOOT_REQUESTED", "kprof: x", kb.SlurmJob{}, false, false},
		{"a plain job runs", "ALLOCATED", "", kb.SlurmJob{ID: 9, State: "RUNNING"}, false, false},
		{"a plain job runs on a part of it", "MIXED", "", kb.SlurmJob{ID: 9, State: "RUNNING"}, false, false},
		{"a plain job waits for its boot", "ALLOCATED+POWERING_UP", "", kb.SlurmJob{ID: 9, State: "CONFIGURING"}, true, false},
		{"a job with a profile waits for its boot", "ALLOCATED+POWERING_UP", "", kb.SlurmJob{ID: 9, State: "CONFIGURING", Reboot: true}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := running(t)
			delete(w.slurm.Jobs, 7)
			if c.job.ID != 0 {
				c.job.Nodes = []string{"n1"}
				w.slurm.Jobs[c.job.ID] = c.job
			}
			w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: x")
			w.pass(time.Second)
			w.node("n1", c.state, c.reason)
			actions := w.pass(time.Second)
			n := w.nodes["n1"]
			if n.Desired.IsStock() != c.returns || has(actions, ArmReturn) != c.arms {
				t.Errorf("wants %s, actions %v", n.Desired, actions)
			}
			if booting := n.Pending != nil; booting != c.returns {
				t.Errorf("pending %+v", n.Pending)
			}
		})
	}
	t.Run("Slurm does not know it", func(t *testing.T) {
		w := running(t)
		delete(w.slurm.Jobs, 7)
		delete(w.slurm.Nodes, "n1")
		if actions := w.pass(time.Second); len(actions) > 0 || w.nodes["n1"].Desired.IsStock() {
			t.Errorf("actions %v, wants %s", actions, w.nodes["n1"].Desired)
		}
	})
}

// An old poll of slurmctld ends no job and sends no node home.
func TestOldPolls(t *testing.T) {
	w := steadyOnStock(t, "n1")
	in := w.input()
	w.ensure(7, mit, "n1")
	in.Allocations, in.Now = w.allocs, w.now
	out := Decide(in)
	for _, a := range out.Allocations {
		if a.Phase != kb.PhaseSwitching {
			t.Errorf("a poll from before the job: %s %s", a.Phase, a.Reason)
		}
	}
	if has(out.Actions, ArmReturn) || has(out.Actions, RequeueJob) {
		t.Errorf("actions %v", out.Actions)
	}
}

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(w *world)
		keeps   bool
		begins  bool
		allowed bool
	}{
		{"nothing happens", func(*world) {}, true, false, true},
		{"the agent is gone for an hour", func(w *world) { w.silence("n1"); w.now = w.now.Add(time.Hour) }, true, false, true},
		{"the agent is new, the boot is not", func(w *world) { a := w.agents["n1"]; a.Since = w.now; w.agents["n1"] = a }, true, false, true},
		{"it crashed and came up on stock", func(w *world) { w.boot("n1", kernels[0], "") }, true, false, false},
		{"it crashed and came up unproven", func(w *world) { w.boot("n1", kernels[1], "") }, true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := running(t)
			c.change(w)
			w.settle()
			n := w.nodes["n1"]
			if keeps := n.Desired == mit; keeps != c.keeps || (n.Pending != nil) != c.begins || n.Steady() != c.allowed {
				t.Errorf("wants %s, pending %v, steady %v", n.Desired, n.Pending, n.Steady())
			}
			if a := w.allocs[kb.JobID{Job: 7}]; a.Phase != kb.PhaseReady {
				t.Errorf("the allocation is %s: that is Slurm's to say", a.Phase)
			}
		})
	}
}

func TestBoot(t *testing.T) {
	t.Run("nothing without an agent", func(t *testing.T) {
		w := steadyOnStock(t, "n1")
		w.silence("n1")
		w.job(7, "CONFIGURING", true, "n1")
		w.node("n1", "ALLOCATED+POWERING_UP", "")
		w.ensure(7, mit, "n1")
		w.settle()
		if p := w.nodes["n1"].Pending; p != nil {
			t.Errorf("pending %+v", p)
		}
	})
	t.Run("nothing when stock is not in the catalog", func(t *testing.T) {
		w := newWorld(t)
		w.catalog.noStock = true
		w.node("n1", "DOWN", "Not responding")
		w.boot("n1", kernels[1], "")
		w.settle()
		if p := w.nodes["n1"].Pending; p != nil {
			t.Errorf("pending %+v", p)
		}
		w.catalog.noStock = false
		w.settle()
		if p := w.nodes["n1"].Pending; p == nil || !p.Kernel.Ref().IsStock() {
			t.Errorf("pending %+v", p)
		}
	})
	t.Run("every boot has its own token", func(t *testing.T) {
		w := booting(t)
		w.allocs[kb.JobID{Job: 7}].BootAttempts = 5
		seen := map[string]bool{}
		for range 4 {
			p := w.nodes["n1"].Pending
			if p == nil || seen[p.Token] {
				t.Fatalf("pending %+v, tokens %v", p, seen)
			}
			seen[p.Token] = true
			w.report("n1", kb.ProgressBooting, "", "")
			w.settle()
			w.boot("n1", kernels[0], "")
			w.settle()
		}
	})
	t.Run("the newest allocation has the node", func(t *testing.T) {
		w := running(t)
		w.job(9, "CONFIGURING", true, "n1") // Slurm gave it on, the end of 7 is not seen yet
		w.node("n1", "ALLOCATED+POWERING_UP", "")
		w.now = w.now.Add(time.Second)
		w.ensure(9, kernels[2].Ref(), "n1")
		w.settle()
		if n := w.nodes["n1"]; n.Owner.Job != 9 || n.Desired != kernels[2].Ref() {
			t.Errorf("owner %s, wants %s", n.Owner, n.Desired)
		}
	})
}

func TestArm(t *testing.T) {
	for _, c := range []struct {
		state, reason string
		want          bool
	}{
		{"ALLOCATED+POWERING_UP", "", true},
		{"ALLOCATED+DRAIN+POWERING_UP", "bad fan", false}, // never a drained node
		{"ALLOCATED+DRAIN+POWERING_UP", "kernel-broker: mitgcm@3: no driver", false},
		{"ALLOCATED+DRAIN+POWERING_UP", "kprof: x", true},                   // slurmctld lost the boot, the drain is our own
		{"ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", "kprof: x", false}, // it is
		{"ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", "Reboot ASAP", false},
	} {
		w := steadyOnStock(t, "n1")
		w.job(7, "CONFIGURING", true, "n1")
		w.node("n1", c.state, c.reason)
		w.ensure(7, mit, "n1")
		if actions := w.settle(); has(actions, ArmReturn) != c.want {
			t.Errorf("%s %q: %v", c.state, c.reason, actions)
		}
	}
}

// The reason of a wide job names a few of its nodes, and how many more there are.
func TestSwitchLimitOfAWideJob(t *testing.T) {
	w := steadyOnStock(t, "n1")
	names := []string{"n1"}
	for i := 2; i <= 3000; i++ {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	w.config.LoadLimit = time.Hour
	w.job(7, "CONFIGURING", true, names...)
	w.node("n1", "ALLOCATED+POWERING_UP", "")
	w.ensure(7, mit, names...)
	w.settle()
	w.pass(w.config.SwitchLimit)
	w.pass(time.Second)
	a := w.allocs[kb.JobID{Job: 7}]
	if a.Phase != kb.PhaseFailed || strings.Count(a.Reason, "unknown to the broker")+strings.Count(a.Reason, "loading") != mostLate ||
		!strings.HasSuffix(a.Reason, " and 2992 more") {
		t.Errorf("%s: %.300s", a.Phase, a.Reason)
	}
}

// A job whose record has no room for what its nodes ran gets its kernel and
// brings it back like any other, and none of that is noted.
func TestABriefRecord(t *testing.T) {
	w := running(t)
	a := w.allocs[kb.JobID{Job: 7}]
	a.Brief, a.Before, a.During, a.After = true, nil, nil, nil
	w.settle()
	if a = w.allocs[a.ID]; a.Phase != kb.PhaseReady || w.nodes["n1"].Desired != mit {
		t.Errorf("%s, n1 wants %s", a.Phase, w.nodes["n1"].Desired)
	}
	delete(w.slurm.Jobs, 7)
	w.pass(time.Second)
	w.node("n1", "IDLE+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@1 for job 7")
	w.pass(time.Second)
	w.boot("n1", kernels[0], "")
	w.node("n1", "IDLE", "")
	w.pass(time.Second)
	w.pass(forgetTime + time.Second)
	if len(w.closed) != 1 {
		t.Fatalf("n1 is %s, the job %s", w.nodes["n1"].Progress(), w.allocs[a.ID].Phase)
	}
	if a = w.closed[0]; a.Phase != kb.PhaseDone || len(a.Before)+len(a.During)+len(a.After) != 0 {
		t.Errorf("%s, proofs before %d, during %d, after %d", a.Phase, len(a.Before), len(a.During), len(a.After))
	}
	if slices.ContainsFunc(a.Timeline, func(e kb.Event) bool { return e.Event == "stock" }) {
		t.Errorf("%+v", a.Timeline)
	}
}

func TestSwitchLimit(t *testing.T) {
	w := switching(t)
	w.config.LoadLimit = time.Hour
	w.pass(w.config.SwitchLimit - time.Second)
	a := w.allocs[kb.JobID{Job: 7}]
	if a.Phase != kb.PhaseSwitching {
		t.Fatalf("%s before its time: %s", a.Phase, a.Reason)
	}
	w.pass(2 * time.Second)
	if a = w.allocs[kb.JobID{Job: 7}]; a.Phase != kb.PhaseFailed || a.Hold || a.Reason != "not ready within 10m0s: waited for n1 (loading)" {
		t.Errorf("%s, hold %v: %s", a.Phase, a.Hold, a.Reason)
	}
	if actions := w.pass(time.Second); has(actions, RequeueJob) {
		t.Error("the hook had no time to end the prolog itself")
	}
	if actions := w.pass(holdDelay); !has(actions, RequeueJob) || has(actions, HoldJob) {
		t.Errorf("actions %v", actions)
	}
}

// What a job with --no-requeue asked for is given back before its script begins,
// and again when slurmctld has forgotten that. Its comment keeps the word until
// Slurm shows it.
func TestNoRequeue(t *testing.T) {
	w := running(t)
	a := w.allocs[kb.JobID{Job: 7}]
	a.NoRequeue, a.Seen = true, false
	comment := func(actions []Action) string {
		for _, action := range actions {
			if action.Kind == CommentJob {
				return action.Text
			}
		}
		return ""
	}
	for _, state := range []string{"CONFIGURING", "RUNNING"} {
		w.job(7, state, true, "n1")
		j := w.slurm.Jobs[7]
		j.Requeue = true
		w.slurm.Jobs[7] = j
		if actions := w.settle(); !has(actions, RestoreNoRequeue) || !strings.HasSuffix(comment(actions), "; norequeue") {
			t.Errorf("%s: actions %v", state, actions)
		}
		j.Requeue = false
		w.slurm.Jobs[7] = j
		if actions := w.settle(); has(actions, RestoreNoRequeue) || strings.Contains(comment(actions), "norequeue") {
			t.Errorf("%s: it has it: %v", state, actions)
		}
	}
	if !w.allocs[a.ID].NoRequeue {
		t.Error("the user's word is forgotten")
	}
}

// A slurmctld that is killed forgets that a job has begun and starts it once more.
// One whose user said --no-requeue is held instead.
func TestNoRequeueIsNotStartedTwice(t *testing.T) {
	for _, no := range []bool{true, false} {
		w := running(t)
		a := w.allocs[kb.JobID{Job: 7}]
		a.NoRequeue = no
		w.job(7, "RUNNING", true, "n1")
		w.settle()
		w.job(7, "CONFIGURING", true, "n1")
		if actions := w.settle(); has(actions, HoldJob) != no {
			t.Errorf("--no-requeue %v: %v", no, actions)
		}
	}
}

// A job that is back in the queue no longer runs on its kernel, and keeps what it
// asked for.
func TestCommentOfARequeuedJob(t *testing.T) {
	for _, c := range []struct {
		name    string
		restart uint32
		lost    bool
		want    string
	}{
		{"by Slurm", 1, false, "kernel-broker: requeued, waits for mitgcm@3: Slurm took it off its nodes; profiling=io; norequeue"},
		{"for a node that lost its kernel", 1, true, "kernel-broker: requeued, waits for mitgcm@3: node n1 lost mitgcm@3: it rebooted; profiling=io; norequeue"},
		{"after a run that the broker did not see", 2, false, ""},
	} {
		w := running(t)
		a := w.allocs[kb.JobID{Job: 7}]
		a.NoRequeue, a.Collectors = true, []string{"io"}
		if c.lost {
			w.boot("n1", kernels[0], "")
			w.settle()
		}
		delete(w.slurm.Jobs, 7)
		w.slurm.Queue = []kb.SlurmJob{{ID: 7, Reference: "7", Restart: c.restart, State: "PENDING", Reason: "BeginTime"}}
		got := ""
		for _, action := range w.decide().Actions {
			if action.Kind == CommentJob {
				got = action.Text
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if j := (kb.SlurmJob{AdminComment: got}); got != "" {
			if ref, ok := j.Requested(); !ok || ref != mit || !j.SaidNoRequeue() {
				t.Errorf("%s: what was asked for is lost: %v %v", c.name, ref, ok)
			}
		}
	}
}

func TestReuse(t *testing.T) {
	type entry struct {
		reference, profile, reason string
		nodes                      uint32
	}
	for _, c := range []struct {
		name  string
		queue []entry
		never bool
		kept  bool
	}{
		{"nobody waits", nil, false, false},
		{"the next wants the same", []entry{{"9", "mitgcm", "Resources", 1}}, false, true},
		{"the next wants the same version", []entry{{"9", "mitgcm@3", "Priority", 1}}, false, true},
		{"the next wants a version that is not", []entry{{"9", "mitgcm@2", "Priority", 1}}, false, false},
		{"the next wants another", []entry{{"9", "lammps", "Resources", 1}}, false, false},
		{"the next wants none", []entry{{"9", "", "Resources", 1}, {"10", "mitgcm", "Priority", 1}}, false, false},
		{"the next is held", []entry{{"9", "lammps", "JobHeldUser", 1}, {"10", "mitgcm", "Priority", 1}}, false, true},
		{"the next wants more nodes", []entry{{"9", "mitgcm", "Resources", 2}}, false, false},
		{"the profile is not for reuse", []entry{{"9", "mitgcm", "Resources", 1}}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := running(t)
			if c.never {
				w.allocs[kb.JobID{Job: 7}].Reuse = kb.ReuseNever
			}
			for i, e := range c.queue {
				j := kb.SlurmJob{ID: uint32(9 + i), Reference: e.reference, State: "PENDING", Reason: e.reason, NodeCount: e.nodes, User: "alice",
					Partition: "main", Demand: &kb.SlurmDemand{}, Priority: uint64(100 - i)}
				if e.profile != "" {
					j.AdminComment = "kernel-broker: " + e.profile + " requested"
				}
				w.slurm.Queue = append(w.slurm.Queue, j)
			}
			a := w.agents["n1"]
			a.Ending, a.EndingSince = 7, w.now
			w.agents["n1"] = a
			w.now = w.now.Add(time.Millisecond)
			w.slurm.Commented = true
			out := w.decide()
			n := w.nodes["n1"]
			if kept := n.KeptFor != ""; kept != c.kept || has(out.Actions, ReserveNodes) != c.kept {
				t.Errorf("kept for %q, actions %v", n.KeptFor, out.Actions)
			}
			if said, answered := out.Kept["n1"]; answered == c.kept || said {
				t.Errorf("answered %v, %v: a node is kept once it is reserved and disarmed", answered, said)
			}
		})
	}
}

// Nodes on a kernel that not everybody may use are kept for the same user only:
// another's job is not judged before it has its nodes.
func TestReuseOfARestrictedKernel(t *testing.T) {
	for _, c := range []struct {
		uid        uint32
		restricted bool
		kept       bool
	}{{1000, false, true}, {2000, false, true}, {1000, true, true}, {2000, true, false}} {
		w := running(t)
		w.allocs[kb.JobID{Job: 7}].UID = 1000
		w.catalog.restricted = map[string]bool{"mitgcm": c.restricted}
		w.slurm.Queue = []kb.SlurmJob{{ID: 9, Reference: "9", State: "PENDING", Reason: "Resources", NodeCount: 1, UID: c.uid,
			Partition: "main", Demand: &kb.SlurmDemand{},
			AdminComment: "kernel-broker: mitgcm requested"}}
		a := w.agents["n1"]
		a.Ending, a.EndingSince = 7, w.now
		w.agents["n1"] = a
		w.now = w.now.Add(time.Millisecond)
		w.slurm.Commented = true
		w.decide()
		if kept := w.nodes["n1"].KeptFor != ""; kept != c.kept {
			t.Errorf("uid %d, restricted %v: kept %v", c.uid, c.restricted, kept)
		}
	}
}

// An epilog of any other job is answered at once.
func TestEpilogOfAPlainJob(t *testing.T) {
	w := steadyOnStock(t, "n1")
	a := w.agents["n1"]
	a.Ending, a.EndingSince = 8, w.now.Add(time.Hour)
	w.agents["n1"] = a
	if kept, answered := w.decide().Kept["n1"]; kept || !answered {
		t.Errorf("answered %v, kept %v", answered, kept)
	}
}

// A node whose job waits for its turn does not answer Slurm's wait, however long
// that takes: the boot that comes with the turn would be a crash.
func TestNodeOfAJobThatWaitsForItsTurn(t *testing.T) {
	for _, inLine := range []bool{false, true} {
		w := steadyOnStock(t, "n1")
		w.job(7, "CONFIGURING", true, "n1")
		w.node("n1", "ALLOCATED+POWERING_UP", "")
		w.inLine = map[kb.JobID]bool{{Job: 7}: inLine}
		if !inLine {
			w.inLine = nil
		}
		w.pass(time.Second)
		start := w.nodes["n1"].SlurmdStart
		w.pass(w.config.AgentLimit + 10*time.Second)
		if answered := w.nodes["n1"].SlurmdStart != start; answered == inLine {
			t.Errorf("in line %v: answered %v", inLine, answered)
		}
	}
}

// An administrator powers a node down while it is in the switch: Slurm takes the
// armed boot back and arms no other, and the node boots after the job all the same.
func TestPowerDownInTheSwitchLetsTheJobRun(t *testing.T) {
	for _, state := range []string{"ALLOCATED+DRAIN+POWER_DOWN", "ALLOCATED+POWER_DOWN"} {
		w := booting(t)
		w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
		w.settle()
		w.slurmd("n1")
		w.node("n1", state, "")
		actions := w.pass(time.Second)
		if a := w.allocs[kb.JobID{Job: 7}]; a == nil || a.Phase != kb.PhaseReady {
			t.Errorf("%s: allocation is %+v", state, a)
		}
		if has(actions, ArmReturn) {
			t.Errorf("%s: armed: %v", state, actions)
		}
	}
}
