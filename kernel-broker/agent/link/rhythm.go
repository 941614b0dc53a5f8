// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math/rand/v2"
	"time"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// heartbeatEvery holds until the broker says another interval, and is the shortest one.
// maxEvery is what any broker may say.
const (
	heartbeatEvery = 5 * time.Second
	maxEvery       = 5 * time.Minute
	maxLate        = 30 * time.Second
	// maxSpread is the longest time over which a broker may have its agents return.
	maxSpread = 5 * time.Minute
)

// rhythm is what the broker said last. The spread outlasts the stream, which it is for.
type rhythm struct {
	every, spread time.Duration
	late          time.Duration // that an answer may be: a busy broker has no less to do when it is cut off
	changed       chan struct{}
}

// begin forgets the interval: the broker of the next stream may know none.
func (r *rhythm) begin() { r.every, r.changed = 0, make(chan struct{}, 1) }

// interval of heartbeats.
func (r rhythm) interval() time.Duration {
	if r.every == 0 {
		return heartbeatEvery
	}
	return r.every
}

// first is when to send the first heartbeat of an interval: agents that connected at
// once do not send them at once.
func (r rhythm) first() time.Duration {
	return rand.N(r.interval()) //nolint:gosec // G404: spreads the nodes over time; nobody gains by guessing it
}

// silence is how long the broker may say nothing, 0 for ever: a broker that knows no
// interval answers no heartbeats.
func (r rhythm) silence() time.Duration {
	if r.every == 0 {
		return 0
	}
	return 2*r.every + r.late
}

// pace takes in the broker's answer to a heartbeat.
func (l *Link) pace(answer *api.Heartbeat) {
	if answer.GetEvery() == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	every := min(max(answer.GetEvery().AsDuration(), heartbeatEvery), maxEvery)
	l.rhythm.spread = min(max(answer.GetSpread().AsDuration(), 0), maxSpread)
	if l.rhythm.every == every {
		return
	}
	l.rhythm.every = every
	select {
	case l.rhythm.changed <- struct{}{}:
	default:
	}
}

// paced is what the broker said last.
func (l *Link) paced() rhythm {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rhythm
}

// repaced has a value when the broker says another interval.
func (l *Link) repaced() <-chan struct{} { return l.paced().changed }
