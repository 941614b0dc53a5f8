// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

func notProfiled(t *testing.T, r *kb.Run, words string) {
	t.Helper()
	if r == nil || r.State != kb.RunFailed || len(r.Nodes) > 0 || !strings.Contains(r.Reason, "not profiled: ") || !strings.Contains(r.Reason, words) {
		t.Errorf("the run is %+v, want one that failed with %q", r, words)
	}
}

// A job that may not be profiled runs all the same, at once, and its run says why.
func TestProfilingIsDenied(t *testing.T) {
	deny := func(_ context.Context, job kb.SlurmJob, ref kb.Ref) error {
		return fmt.Errorf("%w: user %q may not profile jobs on %q", kb.ErrDenied, job.User, ref)
	}
	t.Run("without a kernel of its own", func(t *testing.T) {
		f := profiled(t, "kernel-broker: stock requested; profiling=io")
		f.profile = deny
		f.restart()
		agent := f.attach("n1", kb.StockProfile, "", bootOne)
		for range 2 { // the hook may ask again
			r, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7})
			if err != nil {
				t.Fatal(err)
			}
			notProfiled(t, r, `user "alice" may not profile jobs on "stock"`)
		}
		if runs, err := f.c.ProfilingRuns(t.Context(), 9, 7, nil); err != nil || len(runs) != 1 || runs[0].User != "alice" {
			t.Errorf("runs of the job: %+v, %v", runs, err)
		}
		if wishes, _ := agent.wishes(); len(wishes) > 0 {
			t.Errorf("its node is to profile %+v", wishes)
		}
	})
	t.Run("with one", func(t *testing.T) {
		f := profiled(t, "kernel-broker: mitgcm requested; profiling=io")
		f.profile = deny
		f.restart()
		f.attach("n1", kb.StockProfile, "", bootOne)
		f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
		if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
			t.Fatal(err)
		}
		until(t, "the job gets its kernel", func() bool { return f.phase(7) == kb.PhaseSwitching })
		a, err := f.c.Job(t.Context(), 7, nil)
		if err != nil || a.Run != 1 || len(a.Collectors) != 1 { // they are asked for again when it is requeued
			t.Errorf("%+v, %v", a, err)
		}
		notProfiled(t, f.run(1), `jobs on "mitgcm@1"`)
		if runs, err := f.c.ProfilingRuns(t.Context(), 9, 0, nil); err != nil || len(runs) != 1 {
			t.Errorf("%+v, %v", runs, err)
		}
	})
}

// One user's jobs take no more than their share of the runs; those of others are profiled.
func TestRunsOfOneUser(t *testing.T) {
	f := newFixture(t)
	f.runs.Standby = time.Millisecond
	f.tune = func(c *plan.Config) { c.RunsOfUser = 2 }
	f.start()
	begin := func(id, uid uint32) *kb.Run {
		t.Helper()
		f.slurm.job(id, "RUNNING", "n1")
		f.slurm.mu.Lock()
		job := f.slurm.jobs[id]
		job.UID, job.User = uid, fmt.Sprintf("user%d", uid)
		f.slurm.jobs[id] = job
		f.slurm.comments[job.Reference] = "kernel-broker: stock requested; profiling=io"
		f.slurm.mu.Unlock()
		r, err := f.c.BeginRun(t.Context(), kb.JobID{Job: id})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for id := range uint32(2) {
		if r := begin(id+1, 1000); r.Over() {
			t.Errorf("%+v", r)
		}
	}
	notProfiled(t, begin(3, 1000), "2 profiling runs of user user1000 are under way, the limit (runs.of_user of broker.yaml)")
	if r := begin(4, 1001); r.Over() || len(r.Nodes) != 1 {
		t.Errorf("another user's: %+v", r)
	}
}
