// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// slurmctld, killed before it saved the end of a job, holds it for running again.
// Once the nodes have returned there is nothing of the job left that could end.
func TestJobWhoseEndSlurmForgot(t *testing.T) {
	for _, c := range []struct {
		name    string
		requeue bool
		want    Kind
	}{
		{"it goes back to the queue", true, RequeueJob},
		{"with --no-requeue it is over", false, CancelJob},
	} {
		w := running(t)
		job := w.slurm.Jobs[7]
		delete(w.slurm.Jobs, 7)
		w.node("n1", "IDLE+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
		w.pass(time.Second)
		w.pass(time.Second)
		w.report("n1", kb.ProgressBooting, "", "")
		w.settle()
		job.Requeue = c.requeue
		w.slurm.Jobs[7] = job
		w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
		if early := w.pass(time.Second); has(early, c.want) {
			t.Errorf("%s: before the nodes are back: %v", c.name, early)
		}
		w.boot("n1", kernels[0], w.nodes["n1"].Pending.Token)
		if actions := w.settle(); !has(actions, c.want) {
			t.Errorf("%s: %v", c.name, actions)
		}
		delete(w.slurm.Jobs, 7)
		w.node("n1", "IDLE", "")
		w.slurmd("n1")
		if actions := w.pass(time.Second); has(actions, c.want) {
			t.Errorf("%s: once more: %v", c.name, actions)
		}
	}
}

// The job may be done before slurmctld is killed: its nodes run stock and take no step of it.
func TestDoneJobWhoseEndSlurmForgot(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{2 * time.Second, true}, {forgetTime + 2*time.Second, false}} {
		w := running(t)
		job := w.slurm.Jobs[7] // it has --no-requeue
		off(t, w, "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
		home(w)
		w.pass(time.Second)
		w.slurmd("n1")
		w.node("n1", "IDLE", "")
		w.pass(time.Second)
		if a := w.allocs[kb.JobID{Job: 7}]; a == nil || a.Phase != kb.PhaseDone {
			t.Fatalf("not done: %+v", a)
		}
		w.pass(c.after)
		w.pass(time.Second)
		w.slurm.Jobs[7] = job
		w.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@3 for job 7")
		if actions := w.pass(time.Second); has(actions, CancelJob) != c.want {
			t.Errorf("%v after its end: %v", c.after, actions)
		}
	}
}

// A job whose burst buffer is staged out has left its nodes.
func TestJobThatIsStagedOutHasEnded(t *testing.T) {
	w := running(t)
	w.job(7, "STAGE_OUT", true, "n1")
	w.node("n1", "DOWN+DRAIN+REBOOT_ISSUED", "kprof: mitgcm@3 for job 7 : reboot issued")
	w.pass(time.Second)
	actions := w.pass(time.Second)
	if a := w.allocs[kb.JobID{Job: 7}]; a.Phase != kb.PhaseReturning || !w.nodes["n1"].Desired.IsStock() || has(actions, CancelJob) {
		t.Errorf("%s, n1 wants %s, %v", a.Phase, w.nodes["n1"].Desired, actions)
	}
}
