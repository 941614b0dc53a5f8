// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/turns"
)

// threeJobs is a broker that does one switch at a time, with job 7 in it and jobs
// 8 and 9 in line.
func threeJobs(t *testing.T) (f *fixture, ask func(id uint32) error) {
	f = newFixture(t)
	f.slurm.node("n3", "ALLOCATED+POWERING_UP", "")
	f.tuneOptions = func(o *Options) { o.Switches = 1 }
	f.start()
	ask = func(id uint32) error {
		r := request(id)
		r.Nodes = []string{map[uint32]string{7: "n1", 8: "n2", 9: "n3"}[id]}
		_, err := f.c.Ensure(t.Context(), r)
		return err
	}
	for id, node := range map[uint32]string{7: "n1", 8: "n2", 9: "n3"} {
		f.attach(node, kb.StockProfile, "", bootOne+node)
		f.slurm.node(node, "ALLOCATED+POWERING_UP", "")
		f.slurm.job(id, "CONFIGURING", node)
	}
	until(t, "the jobs are seen", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		return len(f.c.view.Jobs) == 3
	})
	if err := ask(7); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint32{8, 9} {
		if err := ask(id); !errors.Is(err, kb.ErrExhausted) {
			t.Fatalf("job %d: %v", id, err)
		}
	}
	return f, ask
}

// Jobs come to their turn in the order in which they first asked, and are told
// where they stand.
func TestTurnsAreInOrder(t *testing.T) {
	f, ask := threeJobs(t)
	if f.slurm.seen("comment 8 kernel-broker: waits for its turn, 0 ahead") != 1 || f.slurm.seen("comment 9 kernel-broker: waits for its turn, 1 ahead") != 1 {
		t.Errorf("calls %q", f.slurm.calls)
	}
	f.slurm.end(7)
	until(t, "the first has left", func() bool { return f.phase(7) != kb.PhaseSwitching && f.phase(7) != kb.PhaseAccepted })
	if err := ask(9); !errors.Is(err, kb.ErrExhausted) {
		t.Errorf("the last one overtakes: %v", err)
	}
	if err := ask(8); err != nil {
		t.Errorf("the turn of job 8: %v", err)
	}
	if f.slurm.seen("hold") != 0 || f.slurm.seen("requeue") != 0 {
		t.Errorf("calls %q", f.slurm.calls)
	}
}

// A job whose turn does not come before Slurm would take its nodes down is
// requeued, and keeps its place.
func TestTurnThatDoesNotCome(t *testing.T) {
	f, ask := threeJobs(t)
	f.slurm.mu.Lock()
	f.slurm.resumeTimeout = time.Minute
	f.slurm.mu.Unlock()
	until(t, "the limit is seen", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		return f.c.view.ResumeTimeout > 0
	})
	f.c.mu.Lock()
	f.c.line = turns.New(1)
	f.c.line.Ask(kb.JobID{Job: 8}, 1, time.Now().Add(-31*time.Second))
	f.c.line.Ask(kb.JobID{Job: 9}, 1, time.Now().Add(-30*time.Second))
	f.c.mu.Unlock()
	if err := ask(8); !errors.Is(err, kb.ErrExhausted) || f.slurm.seen("requeue 8") != 1 || f.slurm.seen("requeue 9") != 0 {
		t.Errorf("%v, calls %q", err, f.slurm.calls)
	}
	// The prolog of the run that is over does not wait for a turn: the job starts anew when it has ended.
	f.slurm.mu.Lock()
	j := f.slurm.jobs[8]
	j.Restart = 1
	f.slurm.jobs[8] = j
	f.slurm.mu.Unlock()
	until(t, "the requeue is seen", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		return f.c.view.Jobs[8].Restart == 1
	})
	if err := ask(8); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("the run that was requeued: %v", err)
	}
	ahead := func(id kb.JobID) int {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		n, _ := f.c.askLocked(id)
		return n
	}
	if n := ahead(kb.JobID{Job: 8, Restart: 1}); n != 0 {
		t.Errorf("%d ahead of the next run", n)
	}
	if n := ahead(kb.JobID{Job: 9}); n != 1 {
		t.Errorf("%d ahead of the job behind it", n)
	}
}
