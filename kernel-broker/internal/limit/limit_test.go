// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Unix(1e9, 0)} }

func TestRates(t *testing.T) {
	c := newClock()
	r := NewRates(Rate{PerSecond: 2, Burst: 3}, 10, c.now)
	for n := range 3 {
		if wait := r.Take("alice"); wait != 0 {
			t.Fatalf("%d of 3 at once: wait %v", n+1, wait)
		}
	}
	wait := r.Take("alice")
	if wait != 500*time.Millisecond {
		t.Errorf("the fourth: wait %v", wait)
	}
	if again := r.Take("alice"); again != wait {
		t.Errorf("a refusal costs: wait %v", again)
	}
	if bobs := r.Take("bob"); bobs != 0 {
		t.Errorf("alice has used up what is bob's: wait %v", bobs)
	}
	c.at = c.at.Add(wait)
	if back := r.Take("alice"); back != 0 {
		t.Errorf("back when told: wait %v", back)
	}
}

func TestWaitTakesNothing(t *testing.T) {
	c := newClock()
	r := NewRates(Rate{PerSecond: 1, Burst: 1}, 10, c.now)
	for range 50 {
		if wait := r.Wait("alice"); wait != 0 {
			t.Fatalf("wait %v", wait)
		}
	}
	if wait := r.Take("alice"); wait != 0 {
		t.Errorf("take after only asking: wait %v", wait)
	}
	if first, second := r.Wait("alice"), r.Wait("alice"); first != time.Second || second != time.Second {
		t.Errorf("none left: waits %v and %v", first, second)
	}
}

// However many come, no more are kept, and who was known before has his own.
func TestRatesAreBounded(t *testing.T) {
	c := newClock()
	r := NewRates(Rate{PerSecond: 1, Burst: 2}, 100, c.now)
	r.Take("alice")
	granted := 0
	for n := range 10_000 {
		if r.Take(fmt.Sprint("stranger ", n)) == 0 {
			granted++
		}
	}
	if len(r.of) > 100 {
		t.Errorf("%d are kept", len(r.of))
	}
	if granted > 99+2 {
		t.Errorf("%d calls of those without a bucket of their own were let through", granted-99)
	}
	if wait := r.Take("alice"); wait != 0 {
		t.Errorf("alice has lost her second call: wait %v", wait)
	}
	c.at = c.at.Add(time.Minute)
	if wait := r.Take("carol"); wait != 0 || r.of["carol"] == nil {
		t.Errorf("there is no room after a minute: wait %v", wait)
	}
}

// In any stretch of time nobody gets more than the rate and what is at once.
func TestRatesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		rate := Rate{PerSecond: rapid.Float64Range(0.1, 50).Draw(t, "rate"), Burst: rapid.IntRange(1, 20).Draw(t, "burst")}
		r := NewRates(rate, 5, c.now)
		begin, granted := c.at, 0
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			if wait := r.Take("alice"); wait == 0 {
				granted++
			} else if wait < 0 {
				t.Fatal("told to come back in the past")
			}
			c.at = c.at.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "pause")) * time.Millisecond)
		}
		if most := float64(rate.Burst) + rate.PerSecond*c.at.Sub(begin).Seconds() + 1e-3; float64(granted) > most {
			t.Fatalf("%d granted, at most %v", granted, most)
		}
	})
}

func TestRateIsValid(t *testing.T) {
	for _, bad := range []Rate{{0, 1}, {-1, 1}, {1, 0}, {1, -1}, {math.NaN(), 1}, {math.Inf(1), 1}, {1, 1 << 30}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	if err := (Rate{0.5, 1}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestSemaphore(t *testing.T) {
	s := NewSemaphore(3)
	first, second := s.TryAcquire("alice", 2), s.TryAcquire("alice", 2)
	if first == nil || second == nil || s.TryAcquire("alice", 2) != nil {
		t.Fatal("alice may have two")
	}
	bob := s.TryAcquire("bob", 2)
	if bob == nil || s.TryAcquire("bob", 2) != nil || s.TryAcquire("carol", 2) != nil {
		t.Error("there are three in all")
	}
	first()
	first()
	if own, total := s.Held("alice"); own != 1 || total != 2 {
		t.Errorf("released twice: alice holds %d of %d", own, total)
	}
	second()
	bob()
	if len(s.held) != 0 || s.total != 0 {
		t.Errorf("left behind: %v, %d", s.held, s.total)
	}
}

func TestLogSampler(t *testing.T) {
	c := newClock()
	s := NewLogSampler(Rate{PerSecond: 0.1, Burst: 1})
	s.rates.now, s.rates.keep = c.now, 10
	written := 0
	for range 300 {
		if left, write := s.Sample("alice"); write {
			if written++; left != 0 {
				t.Errorf("%d left out before the first line", left)
			}
		}
	}
	if _, bobs := s.Sample("bob"); written != 1 || !bobs {
		t.Errorf("%d lines of alice, of bob: %v", written, bobs)
	}
	c.at = c.at.Add(10 * time.Second)
	if left, write := s.Sample("alice"); !write || left != 299 {
		t.Errorf("the next line: %v, %d left out", write, left)
	}
	c.at = c.at.Add(10 * time.Second)
	if left, write := s.Sample("alice"); !write || left != 0 {
		t.Errorf("and the next: %v, %d left out", write, left)
	}
	for n := range 1000 {
		s.Sample(fmt.Sprint("user ", n))
		s.Sample(fmt.Sprint("user ", n))
	}
	if len(s.left) > 10 {
		t.Errorf("%d are kept", len(s.left))
	}
}
