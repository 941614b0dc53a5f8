// SPDX-License-Identifier: Apache-2.0

// Package limit bounds what each of many callers uses: how often (Rates), how
// much at the same time (Semaphore), and how many log lines (LogSampler; Lines for the
// whole process). Turns tells callers that come at once when to come back.
// Callers are named by strings. Memory is bounded: entries that equal a new one
// are dropped, and beyond DefaultKeep the remaining callers share one entry.
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
	Rate
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
	return &Rates{Rate: r, keep: keep, now: now, of: map[string]*rate.Limiter{}, others: newLimiter(r)}
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
	l := newLimiter(r.Rate)
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
		if l.TokensAt(now) >= float64(r.Burst) {
			delete(r.of, key)
		}
	}
	return len(r.of) < r.keep
}

// Semaphore counts what each key and all keys hold at the same time. It never
// waits. Safe for concurrent use.
type Semaphore struct {
	all int // 0: no common limit

	mu    sync.Mutex
	held  map[string]int
	total int
}

// NewSemaphore limits all keys together to all; 0 is no limit.
func NewSemaphore(all int) *Semaphore { return &Semaphore{all: all, held: map[string]int{}} }

// TryAcquire takes one of key's most. It returns nil if there is none left, else
// the function that releases it, which may be called more than once.
func (s *Semaphore) TryAcquire(key string, most int) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[key] >= most || s.all > 0 && s.total >= s.all {
		return nil
	}
	s.held[key]++
	s.total++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if s.held[key]--; s.held[key] == 0 {
			delete(s.held, key)
		}
	})
}

// Held returns how many key holds, and all keys together.
func (s *Semaphore) Held(key string) (own, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[key], s.total
}

// LogSampler rate-limits log lines per key and counts the lines left out. Safe
// for concurrent use.
type LogSampler struct {
	rates *Rates

	mu   sync.Mutex
	left map[string]int
}

// NewLogSampler allows each key's lines at rate r.
func NewLogSampler(r Rate) *LogSampler {
	return &LogSampler{rates: NewRates(r, DefaultKeep, nil), left: map[string]int{}}
}

// Sample reports whether to write a line about key, and how many were left out
// since the last one.
func (s *LogSampler) Sample(key string) (left int, write bool) {
	write = s.rates.Take(key) == 0
	s.mu.Lock()
	defer s.mu.Unlock()
	left = s.left[key]
	switch {
	case write:
		delete(s.left, key)
		return left, true
	case left > 0 || len(s.left) < s.rates.keep:
		s.left[key]++
	}
	return 0, false
}
