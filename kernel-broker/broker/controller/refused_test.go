// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Who asks about a refused job reads why, also when it has left Slurm.
func TestRefusedJobIsOnRecord(t *testing.T) {
	for name, c := range map[string]struct {
		refuseHold int
		requeued   bool
	}{
		"a batch job is held":    {0, true},
		"an srun cannot be held": {1, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.slurm.refuse["hold 7"] = c.refuseHold
			f.start()
			f.attach("n1", kb.StockProfile, "", bootOne)
			f.slurm.job(7, "CONFIGURING", "n1")
			r := request(7)
			r.Ref = kb.Ref{Profile: "mitgcm", Version: 9}
			if _, err := f.c.Ensure(t.Context(), r); !errors.Is(err, kb.ErrNotFound) {
				t.Fatalf("Ensure: %v", err)
			}
			a, err := f.c.Job(t.Context(), 7, nil)
			if err != nil {
				t.Fatal(err)
			}
			if a.Phase != kb.PhaseFailed || !a.Hold || a.Requeued != c.requeued || !a.Closed || a.UID != 1000 || a.Kernel.Ref() != r.Ref || !strings.Contains(a.Reason, "no version 9") {
				t.Errorf("%+v", a)
			}
			if len(a.Timeline) != 2 || a.Timeline[0].Event != "accepted" || !strings.HasPrefix(a.Timeline[1].Detail, "refused: ") {
				t.Errorf("timeline %+v", a.Timeline)
			}
			if list, err := f.c.Jobs(t.Context(), 10, nil); err != nil || len(list) != 1 {
				t.Errorf("list %v, %v", list, err)
			}
			// No node is touched, nothing is in use, and a restarted broker has nothing left to do.
			if held := f.c.InUse(); len(held) != 0 || f.slurm.seen("arm") != 0 {
				t.Errorf("in use %v, calls %q", held, f.slurm.calls)
			}
			f.restart()
			if a, err := f.c.Job(t.Context(), 7, nil); err != nil || !a.Closed {
				t.Errorf("after a restart: %+v, %v", a, err)
			}
		})
	}
}

// A run that slurmctld starts once more, and that gets its kernel now, goes on in its record.
func TestRefusedRunIsAcceptedLater(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.slurm.job(7, "CONFIGURING", "n1")
	wrong := request(7)
	wrong.Ref.Version = 9
	for range 2 {
		f.slurm.job(7, "CONFIGURING", "n1")
		if _, err := f.c.Ensure(t.Context(), wrong); !errors.Is(err, kb.ErrNotFound) {
			t.Fatalf("Ensure: %v", err)
		}
	}
	f.slurm.job(7, "CONFIGURING", "n1")
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Fatalf("accepted later: %v", err)
	}
	a, err := f.c.Job(t.Context(), 7, nil)
	if err != nil || a.Closed || len(a.Timeline) < 3 {
		t.Errorf("%+v, %v", a, err)
	}
}

// A record that is a day old is of another job, whose id Slurm gives again: a refusal does not show what happened to that one.
func TestRefusedJobWithTheIDOfAnother(t *testing.T) {
	f := newFixture(t)
	r := records{store: f.store}
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := &kb.Allocation{ID: kb.JobID{Job: 7}, Reference: "7", User: "alice", UID: 1000, Requested: request(7).Ref, Kernel: simKernel("mitgcm"), Nodes: request(7).Nodes,
		Phase: kb.PhaseDone, Closed: true, Since: time.Now().Add(-2 * forgotten), Timeline: []kb.Event{{Event: "asked", Detail: "long ago"}}}
	if err := r.commit(t.Context(), nil, []*kb.Allocation{old}); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.slurm.job(7, "CONFIGURING", "n1")
	wrong := request(7)
	wrong.Ref.Version = 9
	if _, err := f.c.Ensure(t.Context(), wrong); !errors.Is(err, kb.ErrNotFound) {
		t.Fatalf("Ensure: %v", err)
	}
	a, err := f.c.Job(t.Context(), 7, nil)
	if err != nil || a.Phase != kb.PhaseFailed || slices.ContainsFunc(a.Timeline, func(e kb.Event) bool { return e.Detail == "long ago" }) {
		t.Errorf("%+v, %v", a, err)
	}
}
