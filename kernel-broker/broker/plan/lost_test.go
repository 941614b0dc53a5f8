// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// runningOnTwo is a job that runs on n1 and n2 with its kernel.
func runningOnTwo(t *testing.T) *world {
	w := steadyOnStock(t, "n1", "n2")
	both := func(state, reason string) { w.node("n1", state, reason); w.node("n2", state, reason) }
	w.job(7, "CONFIGURING", true, "n1", "n2")
	both("ALLOCATED+POWERING_UP", "")
	w.ensure(7, mit, "n1", "n2")
	w.settle()
	for _, name := range []string{"n1", "n2"} {
		w.report(name, kb.ProgressBooting, "", "")
		w.settle()
		w.boot(name, kernels[1], w.nodes[name].Pending.Token)
		w.settle()
		w.slurmd(name)
	}
	both("ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
	w.settle()
	w.job(7, "RUNNING", true, "n1", "n2")
	w.settle()
	return w
}

func downs(actions []Action) (list []string) {
	for _, a := range actions {
		if a.Kind == DownNode {
			list = append(list, a.Node+" "+a.Text)
		}
	}
	return list
}

// A node that lost the kernel under its job keeps the job's wish, starts no
// slurmd, and is down to Slurm. The job's comment says so before.
func TestNodeThatLostItsKernelLeavesTheJob(t *testing.T) {
	w := runningOnTwo(t)
	w.silence("n2")
	w.boot("n2", kernels[0], "")
	actions := append(w.settle(), w.pass(time.Second)...)
	if got, want := downs(actions), []string{"n2 kprof: lost mitgcm@3 under job 7: it rebooted"}; !slices.Equal(got, want) {
		t.Fatalf("downs %q, want %q", got, want)
	}
	comment := slices.IndexFunc(actions, func(a Action) bool { return a.Kind == CommentJob })
	down := slices.IndexFunc(actions, func(a Action) bool { return a.Kind == DownNode })
	if comment < 0 || comment > down || !strings.HasSuffix(actions[comment].Text, "; node n2 lost mitgcm@3: it rebooted") ||
		actions[down].Reference != actions[comment].Reference {
		t.Errorf("actions %+v", actions)
	}
	n := w.nodes["n2"]
	if n.Desired != mit || n.Steady() || n.Pending != nil || n.Told.Lost != 7 {
		t.Errorf("the node is %+v", n)
	}
	if n := w.nodes["n1"]; !n.Steady() || n.Told.Lost != 0 {
		t.Errorf("the other node is %+v", n)
	}
	// Slurm has it down and ends the job: it comes back on stock.
	w.node("n2", "DOWN+DRAIN+REBOOT_REQUESTED", "kprof: lost mitgcm@3 under job 7: it rebooted")
	delete(w.slurm.Jobs, 7)
	if actions := w.pass(time.Second); len(downs(actions)) > 0 {
		t.Errorf("downs again: %v", actions)
	}
	if n := w.nodes["n2"]; !n.Desired.IsStock() || !n.Steady() {
		t.Errorf("after the job the node is %+v", n)
	}
}

// A step that was created in the second of its job's end may be launched when the node is back on stock, by a reset or by its
// return: the node is told for as long as Slurm's credential for the step is good.
func TestLateStepOfAJobThatLeft(t *testing.T) {
	w := runningOnTwo(t)
	w.silence("n2")
	delete(w.slurm.Jobs, 7)
	w.pass(time.Second)
	w.boot("n2", kernels[0], "")
	w.pass(time.Second)
	if n := w.nodes["n2"]; n.LastJob() != (kb.JobID{Job: 7}) || !n.Owner.IsZero() || !n.Steady() {
		t.Fatalf("the node is %+v", n)
	}
	generation := w.nodes["n2"].Generation
	w.pass(lateStep + time.Second)
	if n := w.nodes["n2"]; !n.LastJob().IsZero() || n.Generation == generation {
		t.Errorf("minutes later: %+v", n)
	}
}

// An administrator drained the node before it lost its kernel. The broker's own reason takes the drain's place while the
// job is on the node, and the drain is back after the return.
func TestDrainedNodeThatLostItsKernel(t *testing.T) {
	w := runningOnTwo(t)
	w.node("n2", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "bad DIMM")
	w.settle()
	w.silence("n2")
	w.boot("n2", kernels[0], "")
	const lost = "kprof: lost mitgcm@3 under job 7: it rebooted (before: bad DIMM)"
	if got, want := downs(append(w.settle(), w.pass(time.Second)...)), []string{"n2 " + lost}; !slices.Equal(got, want) {
		t.Fatalf("downs %q, want %q", got, want)
	}
	w.node("n2", "DOWN+DRAIN+REBOOT_REQUESTED", lost)
	w.pass(time.Second)
	delete(w.slurm.Jobs, 7)
	actions := append(w.pass(time.Second), w.pass(time.Second)...)
	if i := slices.IndexFunc(actions, func(a Action) bool { return a.Kind == RestoreState && a.Node == "n2" }); i < 0 || actions[i].Text != "bad DIMM" {
		t.Errorf("the drain is not said again: %v, %+v", actions, w.nodes["n2"])
	}
}

// A job with --no-kill goes on without it, and the node goes home at once.
func TestJobThatGoesOnWithoutANode(t *testing.T) {
	w := runningOnTwo(t)
	w.boot("n2", kernels[0], "")
	w.settle()
	w.node("n2", "DOWN+DRAIN+REBOOT_REQUESTED", "kprof: lost mitgcm@3 under job 7: it rebooted")
	w.job(7, "RUNNING", true, "n1")
	w.pass(time.Second)
	if n := w.nodes["n2"]; !n.Desired.IsStock() || !n.Steady() || !n.Owner.IsZero() {
		t.Errorf("the lost node is %+v", n)
	}
	if n := w.nodes["n1"]; n.Desired != mit || n.Owner.Job != 7 {
		t.Errorf("the job's node is %+v", n)
	}
	if a := w.allocs[kb.JobID{Job: 7}]; a == nil || a.Phase != kb.PhaseReady {
		t.Errorf("the allocation is %+v", a)
	}
}

// Slurm may have taken the node from the job before its reboot is seen, and may
// have given it to another: a poll from before says nothing of that.
func TestLostNodeIsPolledAgain(t *testing.T) {
	w := runningOnTwo(t)
	w.boot("n2", kernels[0], "")
	if got := downs(w.pass(0)); len(got) > 0 {
		t.Errorf("downs %q by a poll that is older than the loss", got)
	}
	w.job(7, "RUNNING", true, "n1")
	w.node("n2", "ALLOCATED", "")
	if got := downs(w.settle()); len(got) > 0 {
		t.Errorf("downs %q of a node that the job has not any more", got)
	}
}
