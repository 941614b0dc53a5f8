// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// missed is when a turn that nobody came for is over.
const missed = time.Minute

// Turns lets callers come at a rate, and tells each beyond it when its turn is: the
// more are waiting, the later. Who comes then is let in, and who comes before is told
// the same time again. Safe for concurrent use.
type Turns struct {
	keep int
	now  func() time.Time

	mu      sync.Mutex
	limiter *rate.Limiter
	booked  map[string]time.Time
}

// NewTurns keeps the turns of up to keep callers. now may be nil.
func NewTurns(r Rate, keep int, now func() time.Time) *Turns {
	if now == nil {
		now = time.Now
	}
	return &Turns{keep: keep, now: now, limiter: newLimiter(r), booked: map[string]time.Time{}}
}

// Take returns 0 to a caller whose turn it is, else how long it has to wait for it.
func (t *Turns) Take(key string) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if at, has := t.booked[key]; has {
		if wait = at.Sub(now); wait > 0 {
			return wait
		}
		delete(t.booked, key)
		if wait > -missed {
			return 0
		}
	}
	reserved := t.limiter.ReserveN(now, 1)
	if wait = reserved.DelayFrom(now); wait == 0 {
		return 0
	}
	if len(t.booked) >= t.keep && !t.sweep(now) {
		reserved.CancelAt(now)
		return wait
	}
	t.booked[key] = now.Add(wait)
	return wait
}

// sweep drops turns that were missed, and reports whether there is room.
func (t *Turns) sweep(now time.Time) bool {
	for key, at := range t.booked {
		if now.Sub(at) >= missed {
			delete(t.booked, key)
		}
	}
	return len(t.booked) < t.keep
}
