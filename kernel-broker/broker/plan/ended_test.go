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
