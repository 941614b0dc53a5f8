// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
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
