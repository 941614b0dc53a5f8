// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// noise is a text that cannot be made shorter by much.
func noise(length int) string {
	r := rand.New(rand.NewPCG(1, uint64(length)))
	var text strings.Builder
	for text.Len() < length {
		fmt.Fprintf(&text, "%016x", r.Uint64())
	}
	return text.String()[:length]
}

// Records are read as they were written, be they short, long, or from before
// long ones were compressed.
func TestRecordsOfEachLength(t *testing.T) {
	r, s := newRecords(t)
	for job, detail := range []string{"", strings.Repeat("x", record.PackFrom), noise(record.PackFrom), strings.Repeat("y", 2*store.MaxCommitBytes)} {
		a := allocation(uint32(job+1), 0, false)
		a.Before = map[string]kb.Proof{"n1": {BootID: detail}}
		if err := r.commit(t.Context(), nil, []*kb.Allocation{a}); err != nil {
			t.Fatal(err)
		}
		rec, err := s.Get(t.Context(), jobKey(a.ID))
		if err != nil || bytes.HasPrefix(rec.Value, []byte("\x1f\x8b")) != (len(detail) >= record.PackFrom) {
			t.Errorf("job %d: a value of %d bytes, %v", a.ID.Job, len(rec.Value), err)
		}
		again := &records{store: s}
		if err := again.load(t.Context()); err != nil || again.allocs[a.ID].Before["n1"].BootID != detail {
			t.Errorf("job %d: read as another, %v", a.ID.Job, err)
		}
	}
	plain := fmt.Sprintf(`{"id":{"job":9,"restart":0},"reason":%q}`, noise(2*record.PackFrom))
	if _, err := s.Commit(t.Context(), store.Write{Key: jobKey(kb.JobID{Job: 9}), Value: []byte(plain)}); err != nil {
		t.Fatal(err)
	}
	if err := r.load(t.Context()); err != nil || r.allocs[kb.JobID{Job: 9}].Reason != noise(2*record.PackFrom) {
		t.Errorf("a long record of before is not read: %v", err)
	}
}

// Where a record is too large, the next reduction form is written, and nothing of
// the rest of the decision suffers.
func TestFitStepByStep(t *testing.T) {
	const nodes = 20
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	draft := func(phase kb.Phase) *kb.Allocation {
		a := &kb.Allocation{ID: kb.JobID{Job: 7}, Phase: phase, Before: map[string]kb.Proof{}}
		a.Enter(phase, now, "")
		for i := range nodes {
			name := fmt.Sprintf("n%d", i)
			a.Nodes = append(a.Nodes, name)
			a.Before[name] = kb.Proof{BootID: noise(3000 + i)}
		}
		for i := range 200 {
			a.Note(now, "n1", "booted", noise(400+i))
		}
		return a
	}
	size := func(a *kb.Allocation, steps ...func(*kb.Allocation)) int {
		for _, step := range steps {
			step(a)
		}
		data, err := record.Encode(jobKey(a.ID), a)
		if err != nil {
			t.Fatal(err)
		}
		return len(data) + len(jobKey(a.ID))
	}
	less := func(a *kb.Allocation) { omitNodeHistory(a, now) }
	none := func(a *kb.Allocation) { failOversized(a, now) }
	for _, c := range []struct {
		phase kb.Phase
		limit int
		did   string
		then  kb.Phase
		brief bool
	}{
		{kb.PhaseSwitching, size(draft(kb.PhaseSwitching)), "", kb.PhaseSwitching, false},
		{kb.PhaseSwitching, size(draft(kb.PhaseSwitching), less), "what its nodes ran is left out", kb.PhaseSwitching, true},
		{kb.PhaseSwitching, size(draft(kb.PhaseSwitching), less, none), "the job is failed", kb.PhaseFailed, true},
		{kb.PhaseSwitching, 600, unwritten, kb.PhaseFailed, true},
		{kb.PhaseReady, 600, unwritten, kb.PhaseReady, true},
		{kb.PhaseReturning, size(draft(kb.PhaseReturning), less), "what its nodes ran is left out", kb.PhaseReturning, true},
	} {
		r, s := newRecords(t)
		s.Limit(store.Limits{Writes: store.MaxWrites, Bytes: c.limit})
		a, other := draft(c.phase), allocation(8, 0, false)
		other.Nodes = nil
		out := plan.Output{Allocations: []*kb.Allocation{a, other}}
		err := r.commit(t.Context(), nil, out.Allocations)
		if c.did != "" {
			if !errors.Is(err, store.ErrTooLarge) {
				t.Fatalf("%d: %v", c.limit, err)
			}
			if list, _, err := s.List(t.Context(), ""); err != nil || len(list) != 0 {
				t.Errorf("%d: refused, and %d records are written, %v", c.limit, len(list), err)
			}
			done := r.fit(now, &out)
			if len(done) != 1 || done[jobKey(a.ID)] != c.did {
				t.Errorf("%s within %d bytes: did %v instead of %q", c.phase, c.limit, done, c.did)
			}
			err = r.commit(t.Context(), nil, out.Allocations)
		}
		if err != nil || r.allocs[other.ID] == nil || r.allocs[a.ID] != a || a.Phase != c.then || a.Brief != c.brief {
			t.Errorf("%s within %d bytes: %s, brief %v, %v", c.phase, c.limit, a.Phase, a.Brief, err)
		}
		if failed := c.then == kb.PhaseFailed; failed != (a.Hold && strings.Contains(a.Reason, "too large")) {
			t.Errorf("%s within %d bytes: hold %v, reason %q", c.phase, c.limit, a.Hold, a.Reason)
		}
		if _, err := s.Get(t.Context(), jobKey(a.ID)); (err == nil) != (c.did != unwritten) {
			t.Errorf("%s within %d bytes: the record: %v", c.phase, c.limit, err)
		}
	}
}

// A run that no store takes fails, and one that is too large even so is left out.
func TestFitRunsAndNodes(t *testing.T) {
	r, s := newRecords(t)
	s.Limit(store.Limits{Writes: store.MaxWrites, Bytes: 1000})
	run := &kb.Run{ID: 1, State: kb.RunRunning, Nodes: []kb.RunNode{{Name: "n1", Reason: noise(2000)}}}
	worse := &kb.Run{ID: 2, State: kb.RunRunning, RequestedBy: noise(2000)}
	node, huge := &kb.Node{Name: "n1"}, &kb.Node{Name: "n2", KeptFor: noise(2000)}
	out := plan.Output{Runs: []*kb.Run{run, worse}, Nodes: []*kb.Node{huge, node}}
	if done := r.fit(time.Now(), &out); len(done) != 3 {
		t.Errorf("%v", done)
	}
	if err := r.commit(t.Context(), out.Nodes, nil, out.Runs...); err != nil {
		t.Fatal(err)
	}
	if list, _, err := s.List(t.Context(), ""); err != nil || len(list) != 2 || run.State != kb.RunFailed || run.Reason == "" {
		t.Errorf("%d records, run %s: %q, %v", len(list), run.State, run.Reason, err)
	}
}

// A record that is too large whatever is done costs its own job its kernel: the
// job is held, its user reads why, and another job gets its kernel and runs.
func TestARecordThatIsTooLargeWhateverIsDone(t *testing.T) {
	w, other := loadingWide(t, 200)
	// Room for any record of a node or a narrow job, and not for 200 nodes' names.
	w.store.Limit(store.Limits{Writes: store.MaxWrites, Bytes: 3000})
	d, _ := w.agents[0].wish()
	w.agents[0].Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressLoading})
	w.come("the job is held", func() bool { return w.slurm.seen("hold 7") > 0 })
	if w.slurm.seen("comment 7 kernel-broker: the broker's record of the job, which is on 200 nodes, is too large") == 0 {
		t.Error("the user does not read why")
	}
	if !w.log.has("record too large for the store") {
		t.Error("the log has nothing of it")
	}
	w.slurm.job(8, "CONFIGURING", "n1")
	w.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	if _, err := w.c.Ensure(t.Context(), request(8)); err != nil {
		t.Fatal(err)
	}
	d = other.wished(t, "another job's kernel", func(d kb.DesiredState) bool { return d.Kernel != nil })
	other.Detach()
	w.attach("n1", "mitgcm", d.Token, bootTwo)
	w.slurm.node("n1", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "kprof: mitgcm@1 for job 8")
	w.come("another job is ready", func() bool { return w.phase(8) == kb.PhaseReady })
}

// A job whose record has no room from the beginning is refused as one that
// cannot be served: it is held, with the reason.
func TestTooWideToBeAccepted(t *testing.T) {
	f := newFixture(t)
	f.start()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("node%04d", i))
		f.slurm.node(names[i], "ALLOCATED+POWERING_UP", "")
	}
	f.store.Limit(store.Limits{Writes: store.MaxWrites, Bytes: 2000})
	f.c.mu.Lock()
	for _, name := range names {
		f.c.records.nodes[name] = &kb.Node{Name: name, Boot: kb.Boot{BootID: bootOne}}
	}
	f.c.mu.Unlock()
	f.slurm.job(7, "CONFIGURING", names...)
	_, err := f.c.Ensure(t.Context(), Request{ID: kb.JobID{Job: 7}, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: names})
	if !errors.Is(err, kb.ErrFailedPrecondition) || f.slurm.seen("hold 7") != 1 || f.slurm.seen("comment 7 kernel-broker: job 7.0 on 100 nodes: the broker's record") != 1 {
		t.Errorf("%v, held %d times", err, f.slurm.seen("hold 7"))
	}
}
