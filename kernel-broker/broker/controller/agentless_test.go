// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A job on a node from which no agent has ever come is held with a reason that
// names the node and what to do, and Slurm is made to wait no more for its boot,
// also by a broker that was started in between.
func TestAJobOnANodeWithoutAgent(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.attach("n1", kb.StockProfile, "", bootOne)
	f.slurm.node("n2", "ALLOCATED+NOT_RESPONDING+POWERING_UP", "")
	f.slurm.job(7, "CONFIGURING", "n1", "n2")
	r := request(7)
	r.Nodes = []string{"n1", "n2"}
	_, err := f.c.Ensure(t.Context(), r)
	if !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "[n2]") || !strings.Contains(err.Error(), "kernel-broker-agent") {
		t.Errorf("Ensure: %v", err)
	}
	if f.slurm.seen("hold 7") != 1 || f.slurm.seen("end wait") != 0 {
		t.Errorf("calls %q", f.slurm.calls)
	}
	f.restart()
	f.slurm.node("n2", "IDLE+NOT_RESPONDING+POWERING_UP", "")
	until(t, "the wait is over", func() bool { return f.slurm.seen("end wait n2") == 1 })
	if f.slurm.seen("end wait n1") != 0 || f.slurm.seen("arm n2") != 0 {
		t.Errorf("calls %q", f.slurm.calls)
	}
	until(t, "nothing is remembered", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		return len(f.c.records.allocs) == 0 && f.c.records.nodes["n2"] == nil
	})
}

// A broker that has just begun waits for agents before it says that there are none.
func TestAgentsHaveTimeToCome(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.c.mu.Lock()
	f.c.begin = f.c.clock.Now()
	f.c.mu.Unlock()
	f.slurm.job(7, "CONFIGURING", "n1")
	var later *kb.RetryableError
	if _, err := f.c.Ensure(t.Context(), request(7)); !errors.As(err, &later) || !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("Ensure: %v", err)
	}
	if f.slurm.seen("hold 7") != 0 {
		t.Errorf("calls %q", f.slurm.calls)
	}
	f.attach("n1", kb.StockProfile, "", bootOne)
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Errorf("Ensure: %v", err)
	}
}

// A node of power saving that was switched off before its agent ever came is powered up for a job: the job waits for the
// agent as long as Slurm waits for the node.
func TestFirstJobOnANodeThatWasOff(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.slurm.node("n1", "IDLE+POWERED_DOWN", "")
	until(t, "the node is seen", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		return !f.c.off["n1"].IsZero()
	})
	f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	f.slurm.job(7, "CONFIGURING", "n1")
	var later *kb.RetryableError
	if _, err := f.c.Ensure(t.Context(), request(7)); !errors.As(err, &later) || f.slurm.seen("hold 7") != 0 {
		t.Fatalf("Ensure: %v; calls %q", err, f.slurm.calls)
	}
	f.attach("n1", kb.StockProfile, "", bootOne)
	if _, err := f.c.Ensure(t.Context(), request(7)); err != nil {
		t.Errorf("its agent has come: %v", err)
	}

	f = newFixture(t)
	f.start()
	f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	f.slurm.job(7, "CONFIGURING", "n1")
	f.c.mu.Lock()
	f.c.off["n1"] = f.c.clock.Now().Add(-2 * time.Hour)
	f.c.mu.Unlock()
	if _, err := f.c.Ensure(t.Context(), request(7)); !errors.Is(err, kb.ErrFailedPrecondition) || f.slurm.seen("hold 7") != 1 {
		t.Errorf("no agent has come in time: %v; calls %q", err, f.slurm.calls)
	}
}
