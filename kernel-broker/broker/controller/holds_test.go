// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// A slurmctld that died right after a hold holds the job again, also when the
// broker was killed at the same time.
func TestHoldsOutlastSlurmctldAndTheBroker(t *testing.T) {
	for _, killed := range []bool{false, true} {
		f := newFixture(t)
		f.start()
		f.slurm.job(8, "CONFIGURING", "n2")
		if _, err := f.c.Ensure(t.Context(), Request{ID: kb.JobID{Job: 8}, Ref: kb.Ref{Profile: "mitgmc"}, Nodes: []string{"n2"}}); err == nil {
			t.Fatal("not refused")
		}
		if f.slurm.seen("hold 8") != 1 {
			t.Fatalf("calls %q", f.slurm.calls)
		}
		if killed {
			f.stop()
		}
		f.slurm.mu.Lock()
		f.slurm.boot = "two"
		f.slurm.queue = []kb.SlurmJob{{ID: 8, Reference: "8", Restart: 1, State: "PENDING", Priority: 100, Reason: "Resources"}}
		f.slurm.mu.Unlock()
		if killed {
			f.start()
		}
		until(t, "it is held again", func() bool { return f.slurm.seen("uhold 8") > 0 })
		f.stop()
	}
}

// What is over is forgotten by the record, too.
func TestHoldsThatAreOverAreForgotten(t *testing.T) {
	f, _ := bare(t)
	if err := f.c.hold(t.Context(), kb.JobID{Job: 8}, "8"); err != nil {
		t.Fatal(err)
	}
	if held, err := f.c.records.loadHolds(t.Context()); err != nil || len(held) != 1 || held[kb.JobID{Job: 8}].Boot != "one" {
		t.Errorf("%v, %v", held, err)
	}
	f.c.mu.Lock()
	f.c.keepHoldsLocked(t.Context(), nil)
	f.c.mu.Unlock()
	if held, err := f.c.records.loadHolds(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("%v, %v", held, err)
	}
}

// A broker that was killed before slurmctld was told of a hold has the hook wait until it is: slurmctld would requeue the
// job as if nothing was wrong.
func TestAHoldOnRecordIsNotTold(t *testing.T) {
	f := newFixture(t)
	id, now := kb.JobID{Job: 7}, time.Now().Add(-time.Minute)
	r := records{store: f.store}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := &kb.Allocation{ID: id, Reference: "7", User: "alice", UID: 1000, Requested: request(7).Ref, Kernel: simKernel("mitgcm"),
		Nodes: request(7).Nodes, Phase: kb.PhaseFailed, Hold: true, Reason: "it does not boot", Created: now, Since: now}
	if err := r.commit(t.Context(), nil, []*kb.Allocation{a}); err != nil {
		t.Fatal(err)
	}
	if err := r.saveHolds(t.Context(), map[kb.JobID]plan.Hold{id: {Since: now, Boot: "one"}}); err != nil {
		t.Fatal(err)
	}
	f.slurm.job(7, "CONFIGURING", "n1")
	f.slurm.slow = true
	f.slurm.viewErr = errors.New("no answer")
	f.start()
	defer f.stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	progress, err := f.c.Ensure(ctx, request(7))
	if err != nil {
		t.Fatal(err)
	}
	if first := <-progress; first.Phase == kb.PhaseFailed {
		t.Fatal("the hook may end the prolog of a job that is not held")
	}
	f.slurm.mu.Lock()
	f.slurm.viewErr = nil
	f.slurm.mu.Unlock()
	for p := range progress {
		if p.Phase != kb.PhaseFailed {
			continue
		}
		if f.slurm.seen("hold 7") == 0 {
			t.Error("the hook ends before the job is held")
		}
		cancel() // which closes the channel
	}
}

// slurmHolds runs something while slurmctld is told of a hold.
type slurmHolds struct {
	*fakeSlurm
	during func(reference string)
}

func (s slurmHolds) Hold(ctx context.Context, reference string) error {
	s.during(reference)
	return s.fakeSlurm.Hold(ctx, reference)
}

// Holds at the same time are all on record, and one that slurmctld refuses is not.
func TestHoldsAtTheSameTimeAreRecorded(t *testing.T) {
	for _, refused := range []bool{false, true} {
		f, _ := bare(t)
		want := 2
		if refused {
			f.slurm.refuse["hold 8"] = 1
			want = 1
		}
		f.c.o.Slurm = slurmHolds{f.slurm, func(reference string) {
			if reference != "8" {
				return
			}
			if err := f.c.hold(t.Context(), kb.JobID{Job: 9}, "9"); err != nil {
				t.Error(err)
			}
		}}
		if err := f.c.hold(t.Context(), kb.JobID{Job: 8}, "8"); (err != nil) != refused {
			t.Error(err)
		}
		f.c.mu.Lock()
		f.c.keepHoldsLocked(t.Context(), maps.Clone(f.c.held))
		f.c.mu.Unlock()
		held, err := f.c.records.loadHolds(t.Context())
		if err != nil || len(held) != want || held[kb.JobID{Job: 9}].Boot != "one" {
			t.Errorf("refused %t: %v, %v", refused, held, err)
		}
	}
}

// A prolog waits until its job is held, and not for one that Slurm does not hold.
func TestPrologWaitsForTheHold(t *testing.T) {
	f, _ := bare(t)
	f.c.clock.since = func() time.Duration { return time.Hour }
	id := kb.JobID{Job: 7}
	a := &kb.Allocation{ID: id, Phase: kb.PhaseFailed, Hold: true, Reason: "it panics"}
	f.c.records.allocs[id] = a
	for _, c := range []struct {
		name string
		ago  time.Duration
		held bool
		want kb.Phase
	}{
		{"not yet held", time.Second, false, kb.PhaseSwitching},
		{"held", time.Second, true, kb.PhaseFailed},
		{"never held", holdLimit + time.Second, false, kb.PhaseFailed},
	} {
		a.Since, f.c.heldInSlurm[id] = f.c.clock.Now().Add(-c.ago), c.held
		if p, err := f.c.progress(t.Context(), id); err != nil || p.Phase != c.want {
			t.Errorf("%s: %s, %v", c.name, p.Phase, err)
		}
	}
}
