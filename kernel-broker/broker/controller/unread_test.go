// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// unread is a job of which nobody knows the nodes.
func (f *fakeSlurm) unread(id uint32, state string) {
	f.job(id, state)
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.jobs[id]
	j.Unread = "host list \"n[1-\" is bad"
	f.jobs[id] = j
}

// A job whose nodes cannot be read waits for better, and all others get theirs.
func TestJobWhoseNodesCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.slurm.unread(7, "CONFIGURING")
	f.slurm.job(8, "CONFIGURING", "n1")
	_, err := f.c.Ensure(t.Context(), Request{ID: kb.JobID{Job: 7}, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: []string{"n2"}})
	if !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "n[1-") {
		t.Errorf("its own request: %v", err)
	}
	if _, err := f.c.BeginRun(t.Context(), kb.JobID{Job: 7}); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("its own run: %v", err)
	}
	if _, err := f.c.Ensure(t.Context(), Request{ID: kb.JobID{Job: 8}, Ref: kb.Ref{Profile: "mitgcm"}, Nodes: []string{"n1"}}); err != nil {
		t.Errorf("another job's: %v", err)
	}
}

// A job is not over because its nodes cannot be read: it keeps what it has.
func TestJobIsNotOverWhenItsNodesCannotBeRead(t *testing.T) {
	f, _, _ := begun(t)
	until(t, "the switch began", func() bool { return f.phase(7) == kb.PhaseSwitching })
	f.slurm.unread(7, "CONFIGURING")
	until(t, "it was checked", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		return f.c.view.Jobs[7].Unread != ""
	})
	if err := f.c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if phase := f.phase(7); phase != kb.PhaseSwitching {
		t.Errorf("the job is %s", phase)
	}
	f.slurm.end(7)
	until(t, "the job is over", func() bool { return f.phase(7) == kb.PhaseReturning || f.phase(7) == kb.PhaseDone })
}
