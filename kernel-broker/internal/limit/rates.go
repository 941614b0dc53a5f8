// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is how often something may be done: PerSecond in the long run, and Burst
// times at once after a pause.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Validate refuses rates by which nothing at all could be done.
func (r Rate) Validate() error {
	switch {
	case math.IsNaN(r.PerSecond) || r.PerSecond < 0.01 || r.PerSecond > 1e6:
		return fmt.Errorf("%v a second is not within 0.01 to 1000000", r.PerSecond)
	case r.Burst < 1 || r.Burst > 1e6:
		return fmt.Errorf("%d at once is not within 1 to 1000000", r.Burst)
	}
	return nil
}

// DefaultKeep is how many are counted one by one.
const DefaultKeep = 10_000

// Rates counts for each of many how often he does something. Safe for concurrent
// use.
type Rates struct {
	rate Rate
	keep int
	now  func() time.Time

	mu     sync.Mutex
	of     map[string]*rate.Limiter
	swept  time.Time
	others *rate.Limiter // of all for whom there is no room
}

// NewRates counts up to keep of them one by one, and those beyond together; now
// may be nil.
func NewRates(r Rate, keep int, now func() time.Time) *Rates {
	if now == nil {
		now = time.Now
	}
	return &Rates{rate: r, keep: keep, now: now, of: map[string]*rate.Limiter{}, others: newBucket(r)}
}

func newBucket(r Rate) *rate.Limiter { return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst) }

// Take asks in the name of who, and returns how long he has to wait: nothing
// when it is granted now. A refusal costs him nothing.
func (r *Rates) Take(who string) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	asked := r.bucket(who, now).ReserveN(now, 1)
	if wait = asked.DelayFrom(now); wait > 0 {
		asked.CancelAt(now)
	}
	return wait
}

// GiveBack undoes what Take granted: it turned out not to count.
func (r *Rates) GiveBack(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	// One less than nothing is asked for; what is beyond a full bucket is lost.
	r.bucket(who, now).AllowN(now, -1)
}

func (r *Rates) bucket(who string, now time.Time) *rate.Limiter {
	if b := r.of[who]; b != nil {
		return b
	}
	if len(r.of) >= r.keep && !r.sweep(now) {
		return r.others
	}
	b := newBucket(r.rate)
	r.of[who] = b
	return b
}

// sweep forgets those whose buckets are full, which is what a new one would be,
// and reports whether there is room. It looks once in a second: many who come
// for the first time must not have it look at all of them each time.
func (r *Rates) sweep(now time.Time) bool {
	if since := now.Sub(r.swept); since >= 0 && since < time.Second {
		return false
	}
	r.swept = now
	for who, b := range r.of {
		if b.TokensAt(now) >= float64(r.rate.Burst) {
			delete(r.of, who)
		}
	}
	return len(r.of) < r.keep
}
