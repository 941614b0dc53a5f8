// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// again has slurmctld start the next run of job 7.
func (f *fixture) again(restart uint32, comment string) {
	f.slurm.job(7, "CONFIGURING", "n1")
	f.slurm.mu.Lock()
	defer f.slurm.mu.Unlock()
	j := f.slurm.jobs[7]
	j.Restart, j.Requeue = restart, true
	f.slurm.jobs[7], f.slurm.comments["7"] = j, comment
}

// What a user said with --no-requeue holds in every later run of the job,
// whatever became of its comment; and not for another user's job that has its id.
func TestNoRequeueOutlastsTheComment(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	ensure := func(restart uint32) *kb.Allocation {
		t.Helper()
		r := request(7)
		r.ID.Restart = restart
		if _, err := f.c.Ensure(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		a, err := f.c.Job(t.Context(), 7, &restart)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	f.again(0, "kernel-broker: mitgcm requested; norequeue")
	if !ensure(0).NoRequeue {
		t.Fatal("not heard")
	}
	for restart := uint32(1); restart < 4; restart++ {
		f.again(restart, "kernel-broker: somebody's words")
		if !ensure(restart).NoRequeue {
			t.Errorf("forgotten in run %d", restart)
		}
	}
	other := kb.SlurmJob{ID: 7, UID: 1001, User: "bob", Restart: 4}
	if last, err := f.c.lastRun(t.Context(), kb.JobID{Job: 7, Restart: 4}, other); last.NoRequeue || err != nil {
		t.Errorf("taken from another user's job: %v, %v", last.ID, err)
	}
}

// A job begins when Slurm shows that it is not requeued, and not for ever later.
func TestJobWaitsForItsNoRequeue(t *testing.T) {
	f, e := bare(t)
	id := kb.JobID{Job: 7}
	now := time.Now()
	a := &kb.Allocation{ID: id, Phase: kb.PhaseReady, NoRequeue: true, Since: now}
	f.c.records.allocs[id] = a
	for _, c := range []struct {
		name   string
		change func(j *kb.SlurmJob)
		want   kb.Phase
	}{
		{"not yet restored", func(*kb.SlurmJob) {}, kb.PhaseSwitching},
		{"restored", func(j *kb.SlurmJob) { j.Requeue = false }, kb.PhaseReady},
		{"another run", func(j *kb.SlurmJob) { j.Restart = 1 }, kb.PhaseReady},
		{"in vain", func(*kb.SlurmJob) { a.Since = now.Add(-restoreLimit) }, kb.PhaseReady},
	} {
		j := kb.SlurmJob{ID: 7, Reference: "7", State: "CONFIGURING", Requeue: true}
		c.change(&j)
		f.c.view.Jobs = map[uint32]kb.SlurmJob{7: j}
		if p, err := f.c.progress(t.Context(), id); err != nil || p.Phase != c.want {
			t.Errorf("%s: %s %q, %v", c.name, p.Phase, p.Message, err)
		}
	}
	if err := e.perform(t.Context(), plan.Action{Kind: plan.RestoreNoRequeue, Job: id, Reference: "7"}); err != nil || f.slurm.seen("norequeue 7") != 1 {
		t.Errorf("%v, %q", err, f.slurm.calls)
	}
}

// The comment of a refused job keeps it too.
func TestRefusalKeepsNoRequeue(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.again(0, "kernel-broker: nobody requested; profiling=io; norequeue")
	r := request(7)
	r.Ref.Profile = "nobody"
	if _, err := f.c.Ensure(t.Context(), r); err == nil {
		t.Fatal("not refused")
	}
	if text, err := f.slurm.AdminComment(t.Context(), 7); err != nil || !strings.HasSuffix(text, "; profiling=io; norequeue") {
		t.Errorf("%q, %v", text, err)
	}
}

// Slurm begins its ids anew in the end: a job that gets one sees nothing of the job before, and inherits nothing.
func TestIDOfAnotherJob(t *testing.T) {
	for name, c := range map[string]struct {
		uid   uint32
		ended time.Duration // ago
		kept  bool
	}{
		"the same run, started once more": {1000, time.Hour, true},
		"another user's":                  {4711, time.Hour, false},
		"the same user's, days ago":       {1000, 2 * forgotten, false},
	} {
		f := newFixture(t)
		r := records{store: f.store}
		if err := r.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := &kb.Allocation{ID: kb.JobID{Job: 7}, Reference: "7", User: "somebody", UID: c.uid, Requested: request(7).Ref, Kernel: simKernel("mitgcm"),
			Nodes: request(7).Nodes, Phase: kb.PhaseDone, Since: time.Now().Add(-c.ended), Closed: true, Reason: "over", NoRequeue: true,
			Timeline: []kb.Event{{Event: "asked", Detail: "for a secret"}}}
		if err := r.commit(t.Context(), nil, []*kb.Allocation{old}); err != nil {
			t.Fatal(err)
		}
		f.start()
		f.attach("n1", kb.StockProfile, "", bootOne)
		f.slurm.job(7, "CONFIGURING", "n1")
		if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
			t.Fatal(err)
		}
		a, err := f.c.Job(t.Context(), 7, nil)
		if err != nil || a.UID != 1000 {
			t.Fatalf("%s: %+v, %v", name, a, err)
		}
		if got := slices.ContainsFunc(a.Timeline, func(e kb.Event) bool { return e.Detail == "for a secret" }); got != c.kept || a.NoRequeue != c.kept {
			t.Errorf("%s: the old events are kept: %t, --no-requeue: %t", name, got, a.NoRequeue)
		}
	}
}

// What the first run of a job asked for holds in its second, though the job that had its id before was requeued more often.
func TestIDOfAJobThatWasRequeuedOften(t *testing.T) {
	f := newFixture(t)
	r := records{store: f.store}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := &kb.Allocation{ID: kb.JobID{Job: 7, Restart: 3}, Reference: "7", UID: 1000, Requested: request(7).Ref, Kernel: simKernel("mitgcm"),
		Nodes: request(7).Nodes, Phase: kb.PhaseDone, Created: time.Now().Add(-time.Hour), Closed: true}
	if err := r.commit(t.Context(), nil, []*kb.Allocation{old}); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.again(0, "kernel-broker: mitgcm requested; norequeue")
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Fatal(err)
	}
	if a, err := f.c.Job(t.Context(), 7, nil); err != nil || a.ID.Restart != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	job := f.slurm.jobs[7]
	if last, err := f.c.lastRun(t.Context(), kb.JobID{Job: 7, Restart: 1}, job); err != nil || !last.NoRequeue {
		t.Errorf("%+v, %v", last, err)
	}
}

// How often Slurm missed the boots of a job's runs goes on from one run to the next, and not to another user's job.
func TestMissedBootsGoOn(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.again(0, "")
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Fatal(err)
	}
	f.c.mu.Lock()
	first := f.c.records.allocs[kb.JobID{Job: 7}].Clone()
	first.Missed = 3
	f.c.mu.Unlock()
	if err := f.commit(t.Context(), nil, []*kb.Allocation{first}); err != nil {
		t.Fatal(err)
	}
	job := f.slurm.jobs[7]
	for uid, want := range map[uint32]uint32{job.UID: 3, job.UID + 1: 0} {
		job.UID = uid
		if last, err := f.c.lastRun(t.Context(), kb.JobID{Job: 7, Restart: 1}, job); err != nil || last.Missed != want {
			t.Errorf("uid %d: %d, %v", uid, last.Missed, err)
		}
	}
}
