// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate allows PerSecond events a second in the long run, and Burst at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Validate refuses rates that allow nothing.
func (r Rate) Validate() error {
	switch {
	case math.IsNaN(r.PerSecond) || r.PerSecond < 0.01 || r.PerSecond > 1e6:
		return fmt.Errorf("%v a second is not within 0.01 to 1000000", r.PerSecond)
	case r.Burst < 1 || r.Burst > 1e6:
		return fmt.Errorf("%d at once is not within 1 to 1000000", r.Burst)
	}
	return nil
}

// DefaultKeep is how many keys have a limiter of their own.
const DefaultKeep = 10_000

// Rates has a token bucket per key. Safe for concurrent use.
type Rates struct {
	rate Rate
	keep int
	now  func() time.Time

	mu     sync.Mutex
	of     map[string]*rate.Limiter
	swept  time.Time
	others *rate.Limiter // shared by the keys beyond keep
}

// NewRates keeps a limiter for each of up to keep keys; the keys beyond share
// one. now may be nil.
func NewRates(r Rate, keep int, now func() time.Time) *Rates {
	if now == nil {
		now = time.Now
	}
	return &Rates{rate: r, keep: keep, now: now, of: map[string]*rate.Limiter{}, others: newLimiter(r)}
}

func newLimiter(r Rate) *rate.Limiter { return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst) }

// Take takes a token of key. It returns 0, or how long key has to wait for one;
// then it takes none.
func (r *Rates) Take(key string) (wait time.Duration) { return r.ask(key, true) }

// Wait returns what Take would, and takes no token.
func (r *Rates) Wait(key string) time.Duration { return r.ask(key, false) }

func (r *Rates) ask(key string, take bool) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	reserved := r.limiter(key, now).ReserveN(now, 1)
	if wait = reserved.DelayFrom(now); wait > 0 || !take {
		reserved.CancelAt(now)
	}
	return wait
}

func (r *Rates) limiter(key string, now time.Time) *rate.Limiter {
	if l := r.of[key]; l != nil {
		return l
	}
	if len(r.of) >= r.keep && !r.sweep(now) {
		return r.others
	}
	l := newLimiter(r.rate)
	r.of[key] = l
	return l
}

// sweep drops full limiters, which equal new ones, at most once a second. It
// reports whether there is room.
func (r *Rates) sweep(now time.Time) bool {
	if since := now.Sub(r.swept); since >= 0 && since < time.Second {
		return false
	}
	r.swept = now
	for key, l := range r.of {
		if l.TokensAt(now) >= float64(r.rate.Burst) {
			delete(r.of, key)
		}
	}
	return len(r.of) < r.keep
}
