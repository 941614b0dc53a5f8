// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// All agents together send no more heartbeats than the budget has, and none is silent
// for less than two of them.
func TestHeartbeatsHaveABudget(t *testing.T) {
	for _, c := range []struct {
		agents int
		budget float64
		every  time.Duration
	}{
		{10_000, 0, 200 * time.Second}, // the default
		{0, 200, 5 * time.Second},
		{1000, 200, 5 * time.Second},
		{1001, 200, 5005 * time.Millisecond},
		{10_000, 200, 50 * time.Second},
		{10_000, 1000, 10 * time.Second},
		{10_000, 1, 5 * time.Minute},
	} {
		r := rhythmOf(c.agents, c.budget)
		if r.Every != c.every {
			t.Errorf("%d agents, %v a second: every %v, want %v", c.agents, c.budget, r.Every, c.every)
		}
		if r.Silence() < 2*r.Every {
			t.Errorf("%d agents: silent after %v, with a heartbeat every %v", c.agents, r.Silence(), r.Every)
		}
		if rate := float64(c.agents) / max(r.Spread.Seconds(), 1e-9); c.agents > 0 && rate > returns()*1.001 {
			t.Errorf("%d agents return within %v", c.agents, r.Spread)
		}
	}
}

// What is told follows the agents that are connected, and before they came back those
// that were there.
func TestRhythmFollowsTheAgents(t *testing.T) {
	f := newFixture(t)
	f.tuneOptions = func(o *Options) { o.Heartbeats = 0.1 }
	f.start()
	f.c.mu.Lock()
	f.c.begin = f.c.begin.Add(-time.Hour)
	f.c.mu.Unlock()
	if r := f.c.Rhythm(); r.Every != MinHeartbeat {
		t.Errorf("without agents: %+v", r)
	}
	a := f.attach("n1", kb.StockProfile, "", bootOne)
	b := f.attach("n2", kb.StockProfile, "", bootTwo)
	if r := f.c.Rhythm(); r.Every != 20*time.Second || r.Spread != time.Duration(2/returns()*float64(time.Second)) {
		t.Errorf("two agents: %+v", r)
	}
	until(t, "both have a record", func() bool { return len(f.c.Nodes()) == 2 })
	a.Detach()
	if r := f.c.Rhythm(); r.Every != 10*time.Second {
		t.Errorf("one agent: %+v", r)
	}
	b.Detach()
	f.restart()
	f.c.mu.Lock()
	f.c.begin = f.c.clock.Now()
	f.c.countLocked()
	f.c.mu.Unlock()
	if r := f.c.Rhythm(); r.Every != 20*time.Second {
		t.Errorf("two agents that are about to come: %+v", r)
	}
}

// The limits by which a silent node is judged are no shorter than agents take to notice that a broker is gone, and than
// they are told to stay away then.
func TestLimitsFollowTheAgents(t *testing.T) {
	c := &Controller{sessions: map[string]*Session{}}
	c.o.Plan.AgentLimit, c.o.Plan.LoadLimit = time.Minute, 2*time.Minute
	c.records.nodes = map[string]*kb.Node{}
	want := c.o.Plan
	want.ReturnGrace = reconnectGrace
	if limits := c.limitsLocked(); limits != want {
		t.Errorf("without nodes: %+v", limits)
	}
	for n := range 60_000 {
		c.records.nodes[fmt.Sprint("n", n)] = nil
	}
	r := rhythmOf(60_000, 0)
	limits := c.limitsLocked()
	for what, limit := range map[string]time.Duration{"agent": limits.AgentLimit, "load": limits.LoadLimit} {
		if limit < Gone+r.Spread {
			t.Errorf("%s limit %v, with %+v", what, limit, r)
		}
	}
	if grace := c.returnGraceLocked(); grace < r.Spread+reconnectGrace {
		t.Errorf("agents have %v to come back, and are told to take %v", grace, r.Spread)
	}
	if limits.StockTimeout != c.o.Plan.StockTimeout {
		t.Error("another limit changed")
	}
}

// Nodes that boot for jobs, a quarter of all, do not wait for a turn. All nodes that come
// at once do, and none longer than agents that were told to spread their return.
func TestTurnsOfNodes(t *testing.T) {
	f := newFixture(t)
	f.start()
	all := 5 * returnRate().Burst
	longest := time.Duration(0)
	for n := range all {
		wait := f.c.Turn(fmt.Sprint("n", n))
		if n < all/5 && wait != 0 {
			t.Fatalf("node %d of %d waits %v", n, all, wait)
		}
		longest = max(longest, wait)
	}
	if spread := rhythmOf(all, 0).Spread; longest == 0 || longest > spread {
		t.Errorf("the last of %d waits %v, agents spread over %v", all, longest, spread)
	}
}
