// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// unheardOf is a job's node that runs its kernel, while slurmctld has not heard from its slurmd.
func unheardOf(t *testing.T) *world {
	t.Helper()
	w := booting(t)
	w.node("n1", "ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.boot("n1", kernels[1], w.nodes["n1"].Pending.Token)
	w.settle()
	if n := w.nodes["n1"]; !n.Runs(mit) || w.allocs[kb.JobID{Job: 7}].Phase != kb.PhaseSwitching {
		t.Fatalf("n1 runs %s", n.Running.Ref)
	}
	return w
}

// requeued: Slurm has put the job back into its queue.
func (w *world) requeued(id uint32) {
	delete(w.slurm.Jobs, id)
	w.slurm.Queue = []kb.SlurmJob{{ID: id, Restart: 1, Reference: "7", State: "PENDING", Reason: "BeginTime", Priority: 100, User: "alice"}}
}

// A kernel without the driver of a GPU: slurmd ends at its start, or registers less than slurm.conf says, and Slurm
// requeues the job. Without end, were it not held.
func TestSlurmdDoesNotRegisterOnAKernel(t *testing.T) {
	for name, c := range map[string]struct {
		after         time.Duration
		state, reason string
		gone          bool
		cause         string
	}{
		"too little":                    {time.Second, "DOWN+DRAIN+INVALID_REG+REBOOT_REQUESTED", "", true, "registers with less"},
		"too little, its return issued": {time.Second, "DOWN+DRAIN+INVALID_REG+REBOOT_ISSUED", " : reboot issued", true, "registers with less"},
		"Slurm boots it again":          {2 * time.Minute, "DOWN+DRAIN+REBOOT_ISSUED", " : reboot issued", true, "not registered 2m0s after its boot"},
		"Slurm gives up":                {2 * time.Minute, "DOWN+POWERED_DOWN", "ResumeTimeout reached", true, "not registered 2m0s after its boot"},
		"never":                         {11 * time.Minute, "ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", "", false, "not registered 11m0s after its boot"},
	} {
		t.Run(name, func(t *testing.T) {
			w := unheardOf(t)
			leaving := kb.SlurmJob{ID: 7, Restart: 1, Reference: "7", State: "COMPLETING", Nodes: []string{"n1"}, User: "alice"}
			reason := c.reason
			if reason != reasonResume {
				reason = "kprof: mitgcm@3 for job 7" + reason
			}
			w.node("n1", c.state, reason)
			if c.gone { // and still leaves its node
				w.slurm.Jobs[7] = leaving
			}
			actions := w.pass(c.after)
			a := w.allocs[kb.JobID{Job: 7}]
			if a.Phase != kb.PhaseFailed || !a.Hold || !strings.Contains(a.Reason, c.cause) || !strings.Contains(a.Reason, "n1") {
				t.Fatalf("phase %s, hold %v, reason %q", a.Phase, a.Hold, a.Reason)
			}
			if faults := w.nodes["n1"].Faults; len(faults) != 1 || faults[0].Ref != mit {
				t.Errorf("faults %+v", faults)
			}
			if !c.gone && !has(actions, HoldJob) {
				t.Errorf("not held: %v", actions)
			}
			w.slurm.Jobs[7] = leaving // where Slurm requeued it before the broker held it, too
			if actions = w.pass(time.Second); has(actions, HoldForUser) {
				t.Fatal("held while it leaves, which slurmctld forgets")
			}
			w.requeued(7)
			if actions = w.pass(time.Second); !has(actions, HoldForUser) {
				t.Fatalf("not held: %v", actions)
			}
			w.slurm.Queue[0].Priority, w.slurm.Queue[0].Reason = 0, "JobHeldUser"
			w.pass(time.Second)
			w.slurm.Queue[0].Priority, w.slurm.Queue[0].Reason = 100, "None"
			if actions = w.pass(time.Second); has(actions, HoldForUser) {
				t.Error("the user's release is undone")
			}
		})
	}
}

// Slurm requeues the job between the two questions of a view: the nodes are as they were before. Why it left, the next view
// tells.
func TestJobThatLeavesDuringAPoll(t *testing.T) {
	leaving := kb.SlurmJob{ID: 7, Restart: 1, Reference: "7", State: "COMPLETING", Nodes: []string{"n1"}, User: "alice"}
	for name, c := range map[string]struct {
		node string
		job  kb.SlurmJob
		want kb.Phase
	}{
		"in the queue":              {"ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", kb.SlurmJob{}, kb.PhaseSwitching},
		"leaves its node":           {"ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", leaving, kb.PhaseSwitching},
		"the node shows it, too":    {"ALLOCATED+COMPLETING+DRAIN", leaving, kb.PhaseReturning},
		"the node is another job's": {"ALLOCATED", kb.SlurmJob{ID: 8, State: "CONFIGURING", Nodes: []string{"n1"}}, kb.PhaseReturning},
	} {
		t.Run(name, func(t *testing.T) {
			w := unheardOf(t)
			w.node("n1", c.node, "kprof: mitgcm@3 for job 7")
			w.requeued(7)
			if c.job.ID != 0 {
				w.slurm.Jobs[c.job.ID] = c.job
			}
			if c.job.ID == 7 {
				w.slurm.Queue = nil
			}
			w.pass(time.Second)
			if a := w.allocs[kb.JobID{Job: 7}]; a.Phase != c.want {
				t.Fatalf("phase %s, reason %q", a.Phase, a.Reason)
			}
			if c.want != kb.PhaseSwitching {
				return
			}
			w.node("n1", "DOWN+DRAIN+INVALID_REG+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
			w.pass(time.Second)
			if a := w.allocs[kb.JobID{Job: 7}]; a.Phase != kb.PhaseFailed || !a.Hold {
				t.Errorf("phase %s, hold %v, reason %q", a.Phase, a.Hold, a.Reason)
			}
		})
	}
}

// What may be another's fault: a kernel that came up when Slurm had given up, a job that its user cancelled, and a node
// on which alone it happens.
func TestKernelIsNotBlamedForARegistration(t *testing.T) {
	w := unheardOf(t)
	w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
	w.requeued(7)
	w.pass(time.Second)
	if a := w.allocs[kb.JobID{Job: 7}]; a.Hold || len(w.nodes["n1"].Faults) > 0 {
		t.Errorf("it was late: %+v, faults %+v", a, w.nodes["n1"].Faults)
	}

	w = unheardOf(t)
	w.now = w.now.Add(20 * time.Minute)
	in := w.input()
	in.Slurm.Since = w.now.Add(-time.Second)
	if out := Decide(in); slices.ContainsFunc(out.Nodes, func(n *kb.Node) bool { return len(n.Faults) > 0 }) {
		t.Error("slurmctld was away")
	}

	w = unheardOf(t)
	delete(w.slurm.Jobs, 7)
	w.node("n1", "IDLE+DRAIN+POWERING_UP+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.pass(2 * time.Minute)
	if a := w.allocs[kb.JobID{Job: 7}]; a.Hold || len(w.nodes["n1"].Faults) > 0 {
		t.Errorf("it was cancelled: %+v, faults %+v", a, w.nodes["n1"].Faults)
	}

	w = unheardOf(t)
	w.nodes["n2"] = &kb.Node{Name: "n2", Booted: []kb.Ref{mit}}
	w.node("n1", "DOWN+DRAIN+INVALID_REG+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.requeued(7)
	w.pass(time.Second)
	if n := w.nodes["n1"]; n.Failure == nil || n.Failure.Kind != kb.FailureNode || len(w.closed) != 1 || w.closed[0].Hold {
		t.Errorf("it works on n2: failure %+v, closed %+v", n.Failure, w.closed)
	}
}

// From 26.05 on Slurm's reason takes the place of the broker's own. The node is resumed when it fits again, and only then;
// what an administrator says in between stays.
func TestDrainOfAKernelEndsWithIt(t *testing.T) {
	const reason = "gres/gpu count reported lower than configured (0 < 1)"
	for _, words := range []string{"", "bad DIMM"} {
		w := unheardOf(t)
		w.nodeBy("n1", "IDLE+DRAIN+INVALID_REG", reason, "slurm@1")
		w.requeued(7)
		w.pass(time.Second)
		w.pass(time.Second)
		if n := w.nodes["n1"]; !n.Desired.IsStock() || n.Slurm.Restore != nil {
			t.Fatalf("wants %s, out of service %+v", n.Desired, n.Slurm.Restore)
		}
		if words != "" {
			w.nodeBy("n1", "IDLE+DRAIN+INVALID_REG", words, "root@2")
			w.pass(time.Second)
		}
		w.boot("n1", kernels[0], w.nodes["n1"].Pending.Token)
		w.settle()
		w.slurmd("n1")
		if actions := w.pass(2 * healDelay); has(actions, ResumeNode) {
			t.Errorf("%q: resumed before it has registered", words)
		}
		if words == "" {
			w.nodeBy("n1", "IDLE+DRAIN", reason, "slurm@1")
		} else {
			w.nodeBy("n1", "IDLE+DRAIN", words, "root@2")
		}
		if actions := w.pass(2 * healDelay); has(actions, ResumeNode) != (words == "") {
			t.Errorf("%q: %v", words, actions)
		}
	}
}

// What an administrator said before stays on record, although Slurm's reason takes its place.
func TestAWordOutlastsTheDrainOfAKernel(t *testing.T) {
	w := unheardOf(t)
	const reason = "gres/gpu count reported lower than configured (0 < 1)"
	w.nodeBy("n1", "ALLOCATED+DRAIN+POWERING_UP", "bad DIMM", "root@1")
	w.pass(time.Second)
	w.nodeBy("n1", "IDLE+DRAIN+INVALID_REG", reason, "slurm@2")
	w.requeued(7)
	w.pass(time.Second)
	w.pass(time.Second)
	w.boot("n1", kernels[0], w.nodes["n1"].Pending.Token)
	w.settle()
	w.pass(10 * time.Millisecond)
	w.slurmd("n1")
	w.nodeBy("n1", "IDLE+DRAIN", reason, "slurm@2")
	actions := w.pass(2 * healDelay)
	if n := w.nodes["n1"]; n.Slurm.Restore == nil || n.Slurm.Restore.Reason != "bad DIMM" || has(actions, ResumeNode) {
		t.Errorf("out of service: %+v, %v", n.Slurm.Restore, actions)
	}
	w.nodeBy("n1", "IDLE+DRAIN", "bad DIMM", "slurm@3") // the broker has said it again
	w.done(Action{Kind: RestoreState, Node: "n1"})
	w.pass(time.Second)
	w.nodeBy("n1", "IDLE", "", "")
	if w.pass(time.Second); w.nodes["n1"].Slurm.Restore != nil {
		t.Error("the administrator's resume is not heard")
	}
}
