// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"runtime"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// DefaultHeartbeats is how many heartbeats all agents together send in a second. They tell of agents that hang: TCP tells
// within a minute of hosts and networks that are gone, and systemd ends a broker that hangs.
const DefaultHeartbeats = 50

// MinHeartbeat is the interval of an agent's heartbeats that holds while nobody says
// another, and MaxHeartbeat the longest one.
const (
	MinHeartbeat = 5 * time.Second
	MaxHeartbeat = 5 * time.Minute
)

// returnsPerCPU is how many agents may come in a second for each CPU, half of what one
// has time for: a broker to which all agents come back has other work, too. As many as
// come in returnsAtOnce come without waiting, so that nodes that boot for jobs do not
// queue: a wave is 2,500 of 10,000.
const (
	returnsPerCPU = 500
	returnsAtOnce = 4 * time.Second
)

func returns() float64 { return returnsPerCPU * float64(runtime.GOMAXPROCS(0)) }

func returnRate() limit.Rate {
	return limit.Rate{PerSecond: returns(), Burst: int(returns() * returnsAtOnce.Seconds())}
}

// Rhythm is what agents are told, so that all of them together are no load.
type Rhythm struct {
	// Every is the interval of an agent's heartbeats.
	Every time.Duration
	// Spread is over how long agents whose streams break spread their return.
	Spread time.Duration
}

// Silence is how long an agent with that interval may say nothing: for two heartbeats,
// and what the last one may be late.
func (r Rhythm) Silence() time.Duration { return 2*r.Every + MinHeartbeat }

// rhythmOf so many agents, which send budget heartbeats a second (0: the default).
func rhythmOf(agents int, budget float64) Rhythm {
	if budget <= 0 {
		budget = DefaultHeartbeats
	}
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	return Rhythm{
		Every:  min(max(MinHeartbeat, seconds(float64(agents)/budget)), MaxHeartbeat),
		Spread: seconds(float64(agents) / returns()),
	}
}

// Rhythm is that of all agents. It waits for nothing: agents take
// a broker that does not answer for one that hangs.
func (c *Controller) Rhythm() Rhythm { return rhythmOf(int(c.connected.Load()), c.o.Heartbeats) }

// settling is how long a broker that has begun goes by the agents that it knows, and not
// by those that are back.
const settling = 5 * time.Minute

// countLocked notes how many agents are connected, or about to come.
func (c *Controller) countLocked() {
	agents := len(c.sessions)
	if c.clock.Now().Sub(c.begin) < settling {
		agents = max(agents, len(c.records.nodes))
	}
	c.connected.Store(int64(agents))
}

// Turn returns how long a node's agent has to wait before it may attach: 0 for most,
// and for the more the longer, the more come at once. Who comes again when told has
// its turn.
func (c *Controller) Turn(node string) time.Duration { return c.pace.turns.Take(node) }

// reconnectGrace is the time that a few agents have to come to a broker that has just
// begun, and may know of none.
const reconnectGrace = 10 * time.Second

// returnGraceLocked is the same for as many agents as there may be.
func (c *Controller) returnGraceLocked() time.Duration {
	return reconnectGrace + rhythmOf(max(len(c.records.nodes), len(c.sessions)), c.o.Heartbeats).Spread
}

// Gone is how long TCP takes to tell a node that the broker's host is gone, and the broker that a node is.
const Gone = 50 * time.Second

// limitsLocked are the limits for decisions. Those for a silent node are no shorter than agents take to notice that a
// broker is gone, and to come back, with as many as there are.
func (c *Controller) limitsLocked() plan.Config {
	limits := c.o.Plan
	limits.ReturnGrace = c.returnGraceLocked()
	quiet := Gone + limits.ReturnGrace
	limits.AgentLimit = max(limits.AgentLimit, quiet)
	limits.LoadLimit = max(limits.LoadLimit, quiet)
	return limits
}
