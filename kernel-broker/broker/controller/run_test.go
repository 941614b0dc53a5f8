// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// wishes are those that the agent was told last.
func (a *fakeAgent) wishes() (wishes []kb.DesiredRun, told bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.news {
		if m.Runs != nil {
			wishes, told = m.Runs, true
		}
	}
	return wishes, told
}

func (f *fixture) run(id uint64) *kb.Run {
	f.t.Helper()
	r, err := f.c.ProfilingRun(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// profiled has an idle cluster and a plain job that asked for a run.
func profiled(t *testing.T, comment string) *fixture {
	f := newFixture(t)
	f.start()
	f.slurm.job(7, "CONFIGURING", "n1")
	f.slurm.comments["7"] = comment
	f.slurm.node("n1", "ALLOCATED", "")
	return f
}

var result = kb.Document{Name: kb.ResultFile, Digest: "sha256:" + strings.Repeat("ab", 32), Size: 100}

// The whole way of a run, with a broker that is killed after each step.
func TestRunSurvives(t *testing.T) {
	f := profiled(t, "kernel-broker: stock requested; profiling=noise,io | site's own")
	f.has = func(digest string, size uint64) (bool, error) {
		return digest == result.Digest && size == result.Size, nil
	}
	attach := func() *fakeAgent { return f.attach("n1", "stock", "", "boot-1") }
	agent := attach()
	go func() {
		for told := false; !told && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			w, _ := agent.wishes()
			told = len(w) == 1
		}
		agent.RunReport(1, kb.RunReport{State: kb.RunNodeReady}, nil)
	}()
	r, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7})
	if err != nil || r == nil || r.ID != 1 || !slices.Equal(r.Collectors, []string{"io", "noise"}) || r.UID != 1000 {
		t.Fatalf("%+v, %v", r, err)
	}
	again := func() {
		agent.Detach()
		f.restart()
		agent = attach()
	}
	again()
	until(t, "the wish is told again", func() bool { w, _ := agent.wishes(); return len(w) == 1 && w[0].Run == 1 && !w[0].Ended })
	if r, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7}); err != nil || r.ID != 1 {
		t.Errorf("begun twice: %+v, %v", r, err)
	}
	f.slurm.job(7, "RUNNING", "n1")
	agent.RunReport(1, kb.RunReport{State: kb.RunNodeLooking}, nil)
	until(t, "it runs", func() bool { return f.run(1).State == kb.RunRunning })
	again()
	f.slurm.end(7)
	f.slurm.node("n1", "IDLE", "")
	until(t, "the end is told", func() bool { w, _ := agent.wishes(); return len(w) == 1 && w[0].Ended })
	again()
	if err := f.c.AwaitsRun("n1", 1); err != nil {
		t.Error(err)
	}
	d := Delivery{Run: 1, Node: "n1", Files: []kb.Document{result}}
	if err := f.c.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	until(t, "it is complete", func() bool { return f.run(1).State == kb.RunComplete })
	until(t, "nothing is wanted any more", func() bool { w, told := agent.wishes(); return told && len(w) == 0 })
	again()
	if err := f.c.Deliver(t.Context(), d); err != nil {
		t.Errorf("the same once more: %v", err)
	}
	if files, err := RunFiles(t.Context(), f.c.o.Store); err != nil || !slices.Equal(files[result.Digest], []string{"run 1"}) {
		t.Errorf("files %v, %v", files, err)
	}
}

func TestDeliveriesRefused(t *testing.T) {
	f := profiled(t, "kernel-broker: stock requested; profiling=io")
	f.runs.Standby = time.Millisecond
	f.has = func(digest string, _ uint64) (bool, error) { return digest == result.Digest, nil }
	f.restart()
	if _, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7}); err != nil {
		t.Fatal(err)
	}
	other := result
	other.Digest = "sha256:" + strings.Repeat("cd", 32)
	large := result
	large.Size = 1 << 40
	archive := result
	archive.Name = "counters.tar.gz"
	for _, c := range []struct {
		name string
		d    Delivery
		err  error
	}{
		{"another run", Delivery{Run: 2, Node: "n1", Files: []kb.Document{result}}, kb.ErrNotFound},
		{"another node", Delivery{Run: 1, Node: "n2", Files: []kb.Document{result}}, kb.ErrNotFound},
		{"no files", Delivery{Run: 1, Node: "n1"}, kb.ErrInvalid},
		{"no result among them", Delivery{Run: 1, Node: "n1", Files: []kb.Document{archive}}, kb.ErrInvalid},
		{"a file that is not stored", Delivery{Run: 1, Node: "n1", Files: []kb.Document{other}}, kb.ErrNotFound},
		{"too large", Delivery{Run: 1, Node: "n1", Files: []kb.Document{large}}, kb.ErrInvalid},
	} {
		if err := f.c.Deliver(t.Context(), c.d); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if r := f.run(1); r.Nodes[0].State != kb.RunNodeWaiting {
		t.Errorf("%+v", r)
	}
}

func TestJobsThatAreNotProfiled(t *testing.T) {
	for _, comment := range []string{"", "profiling=io", "kernel-broker: mitgcm requested", "kernel-broker: stock requested; profiling=io,bogus",
		"kernel-broker: stock requested | ; profiling=io"} {
		f := profiled(t, comment)
		if r, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7}); err != nil || r != nil {
			t.Errorf("%q: %+v, %v", comment, r, err)
		}
	}
	f := profiled(t, "kernel-broker: stock requested; profiling=")
	f.runs.Standby = time.Millisecond
	f.restart()
	if r, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7}); err != nil || !slices.Equal(r.Collectors, []string{"io", "syscalls", "noise"}) {
		t.Errorf("the default set: %+v, %v", r, err)
	}
	if _, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 8}); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("no such job: %v", err)
	}
}

func TestRequests(t *testing.T) {
	f := newFixture(t)
	f.start()
	for _, c := range []struct {
		name string
		q    RunRequest
		err  error
	}{
		{"for nothing", RunRequest{}, kb.ErrInvalid},
		{"for two things", RunRequest{Application: "x", Profile: "mitgcm"}, kb.ErrInvalid},
		{"an unknown profile", RunRequest{Profile: "bogus"}, kb.ErrNotFound},
		{"an unknown collector", RunRequest{Profile: "mitgcm", Collectors: []string{"bogus"}}, kb.ErrInvalid},
		{"pgo", RunRequest{Profile: "mitgcm", Collectors: []string{"io", "pgo"}}, kb.ErrFailedPrecondition},
		{"a long name", RunRequest{Application: strings.Repeat("x", 200)}, kb.ErrInvalid},
	} {
		if _, err := f.c.RequestRun(t.Context(), c.q); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	q := RunRequest{RequestID: "one", Profile: "mitgcm", By: "root"}
	for range 2 {
		if r, err := f.c.RequestRun(t.Context(), q); err != nil || r.ID != 1 || len(r.Collectors) != 3 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if r, err := f.c.CancelRun(t.Context(), 1, "bob"); err != nil || r.State != kb.RunFailed || r.Reason != "taken back by bob" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := f.c.CancelRun(t.Context(), 1, "bob"); !errors.Is(err, kb.ErrFailedPrecondition) {
		t.Errorf("twice: %v", err)
	}
	q.RequestID = "two"
	f.restart()
	if r, err := f.c.RequestRun(t.Context(), q); err != nil || r.ID != 2 {
		t.Errorf("the next: %+v, %v", r, err)
	}
	if runs, err := f.c.ProfilingRuns(t.Context(), 1, 0, nil); err != nil || len(runs) != 1 || runs[0].ID != 2 {
		t.Errorf("the newest: %+v, %v", runs, err)
	}
	if err := runKind.Prune(t.Context(), f.c.records.store, &f.c.records.runIndex, 0); err != nil {
		t.Error(err)
	}
	if runs, err := f.c.ProfilingRuns(t.Context(), 9, 0, nil); err != nil || len(runs) != 1 {
		t.Errorf("what is over is forgotten, the newest is not: %+v, %v", runs, err)
	}
}

// A request whose job leaves before it began waits for the next one, on which the node has said nothing yet.
func TestRequestForTheNextJob(t *testing.T) {
	f := newFixture(t)
	f.start()
	agent := f.attach("n1", kb.StockProfile, "", bootOne)
	if _, err := f.c.RequestRun(t.Context(), RunRequest{Profile: "mitgcm", Collectors: []string{"io"}, By: "root"}); err != nil {
		t.Fatal(err)
	}
	for _, job := range []uint32{7, 8} {
		f.slurm.job(job, "CONFIGURING", "n1")
		f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
		if _, err := f.c.Ensure(t.Context(), request(job)); err != nil {
			t.Fatal(err)
		}
		until(t, "the request has a job", func() bool { return f.run(1).Job.Job == job })
		if n := f.run(1).Nodes[0]; n.State != kb.RunNodeWaiting {
			t.Errorf("job %d: %+v", job, n)
		}
		agent.RunReport(1, kb.RunReport{State: kb.RunNodeReady}, nil)
		until(t, "the node is ready", func() bool { return f.run(1).Nodes[0].State == kb.RunNodeReady })
		f.slurm.end(job)
		f.slurm.node("n1", "IDLE", "")
		until(t, "the request waits", func() bool { return f.run(1).Job.IsZero() })
	}
}

// From 26.05 on Slurm names the cgroup of each start of a job by an id of its own.
func TestRunKnowsTheCgroupOfItsJob(t *testing.T) {
	const cgroup = "s1C5M8FXCH1800"
	t.Run("of a job without a profile", func(t *testing.T) {
		f := profiled(t, "kernel-broker: stock requested; profiling=io")
		f.slurm.cgroup = cgroup
		agent := f.attach("n1", kb.StockProfile, "", bootOne)
		if _, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7}); err != nil {
			t.Fatal(err)
		}
		until(t, "the agent knows the cgroup", func() bool { return agent.toldCgroup(cgroup) })
	})
	t.Run("of a request for the next job", func(t *testing.T) {
		f := newFixture(t)
		f.start()
		f.slurm.cgroup = cgroup
		f.attach("n1", kb.StockProfile, "", bootOne)
		if _, err := f.c.RequestRun(t.Context(), RunRequest{Profile: "mitgcm", Collectors: []string{"io"}, By: "root"}); err != nil {
			t.Fatal(err)
		}
		f.slurm.job(7, "CONFIGURING", "n1")
		f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
		if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
			t.Fatal(err)
		}
		until(t, "the run has the job's cgroup", func() bool { return f.run(1).Cgroup == cgroup })
		f.slurm.end(7)
		f.slurm.node("n1", "IDLE", "")
		until(t, "the request waits without one", func() bool { r := f.run(1); return r.Job.IsZero() && r.Cgroup == "" })
	})
}

// A job is profiled though an earlier one had its id, and never gets another user's run.
func TestRunOfAnotherJobWithTheID(t *testing.T) {
	for name, c := range map[string]struct {
		uid   uint32
		ended time.Duration // ago
		want  uint64
	}{
		"its own, asked for twice":        {1000, 0, 1},
		"another user's":                  {4711, 0, 2},
		"the same user's, of days before": {1000, 2 * forgotten, 2},
	} {
		f := newFixture(t)
		r := records{store: f.store}
		if err := r.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := &kb.Run{ID: 1, State: kb.RunFailed, Since: time.Now().Add(-c.ended), Job: kb.JobID{Job: 7}, UID: c.uid, Collectors: []string{"io"}}
		if err := r.commit(t.Context(), nil, nil, old); err != nil {
			t.Fatal(err)
		}
		f.runs.Standby = time.Millisecond
		f.start()
		f.slurm.job(7, "CONFIGURING", "n1")
		f.slurm.comments["7"] = "kernel-broker: stock requested; profiling=io"
		f.slurm.node("n1", "ALLOCATED", "")
		if run, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7}); err != nil || run.ID != c.want {
			t.Errorf("%s: %+v, %v", name, run, err)
		}
	}
}

// toldCgroup is whether the agent was last told of a run in this cgroup.
func (a *fakeAgent) toldCgroup(cgroup string) bool {
	wishes, _ := a.wishes()
	return len(wishes) == 1 && wishes[0].Cgroup == cgroup
}

func TestWatchRun(t *testing.T) {
	f := profiled(t, "kernel-broker: stock requested; profiling=io")
	f.runs.Standby = time.Millisecond
	f.restart()
	agent := f.attach("n1", "stock", "", "boot-1")
	if _, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := f.c.WatchRun(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	watched := func() bool { w, _ := agent.wishes(); return len(w) == 1 && w[0].Watched }
	go func() {
		until(t, "figures are asked for", watched)
		agent.RunReport(2, kb.RunReport{}, []byte("another run's"))
		agent.RunReport(1, kb.RunReport{}, []byte("figures"))
	}()
	for news := range stream {
		if news.Node != "" && (news.Node != "n1" || string(news.JSON) != "figures") {
			t.Errorf("%+v", news)
		}
		if news.Node == "n1" {
			agent.RunReport(1, kb.RunReport{State: kb.RunNodeFailed, Reason: "no BTF"}, nil)
			f.slurm.end(7)
		}
	}
	if r := f.run(1); r.State != kb.RunFailed {
		t.Errorf("the stream ended before the run: %+v", r)
	}
	if _, err := f.c.WatchRun(ctx, 1); !errors.Is(err, kb.ErrFailedPrecondition) {
		t.Errorf("a run that is over: %v", err)
	}
}

// A job with a kernel of its own begins when the collectors stand by on it, or
// after the time that they may take.
func TestJobWaitsForItsCollectors(t *testing.T) {
	for name, standby := range map[string]time.Duration{"they stand by": time.Hour, "they do not": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.runs.Standby = standby
			f.start()
			f.slurm.comments["7"] = "kernel-broker: mitgcm requested; profiling=io"
			agent := f.attach("n1", kb.StockProfile, "", bootOne)
			agent.wished(t, "stock is attested", func(d kb.DesiredState) bool { return d.Attested })
			f.slurm.job(7, "CONFIGURING", "n1")
			f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
			progress, err := f.c.Ensure(t.Context(), request(7))
			if err != nil {
				t.Fatal(err)
			}
			d := agent.wished(t, "a kernel to boot", func(d kb.DesiredState) bool { return d.Kernel != nil })
			agent.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
			agent.Detach()
			agent = f.attach("n1", "mitgcm", d.Token, bootTwo)
			f.slurm.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@1 for job 7")
			waited := false
			for p := range progress {
				if strings.Contains(p.Message, "profiling run 1") {
					if waited = true; p.Phase != kb.PhaseSwitching || f.phase(7) != kb.PhaseReady {
						t.Errorf("waits as %+v, is %s", p, f.phase(7))
					}
					if standby == time.Hour {
						agent.RunReport(1, kb.RunReport{State: kb.RunNodeReady}, nil)
					}
				}
				if p.Phase == kb.PhaseReady {
					break
				}
			}
			if standby == time.Hour && !waited {
				t.Error("the job did not wait for its collectors")
			}
		})
	}
}

// A job that is held because it cannot have its kernel is profiled when it is
// released: its comment still says so.
func TestRefusedJobKeepsItsCollectors(t *testing.T) {
	f := profiled(t, "kernel-broker: bogus requested; profiling=io,noise")
	f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	_, err := f.c.Ensure(t.Context(), Request{ID: kb.JobID{Job: 7}, Ref: kb.Ref{Profile: "bogus"}, Nodes: []string{"n1"}})
	if !errors.Is(err, kb.ErrNotFound) {
		t.Fatal(err)
	}
	comment, err := f.slurm.AdminComment(t.Context(), 7)
	if err != nil || !strings.HasSuffix(comment, "; profiling=io,noise") || !strings.Contains(comment, "bogus") {
		t.Errorf("%q, %v", comment, err)
	}
}
