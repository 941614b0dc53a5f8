// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
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

// What did not count is given back, and makes nobody richer than he was.
func TestGivenBack(t *testing.T) {
	c := newClock()
	r := NewRates(Rate{PerSecond: 1, Burst: 3}, 10, c.now)
	for range 50 {
		if wait := r.Take("alice"); wait != 0 {
			t.Fatalf("wait %v", wait)
		}
		r.GiveBack("alice")
	}
	for range 50 {
		r.GiveBack("alice")
	}
	for n := range 4 {
		if wait := r.Take("alice"); (wait != 0) != (n == 3) {
			t.Errorf("%d of 3 at once: wait %v", n+1, wait)
		}
	}
	r.GiveBack("alice")
	if first, second := r.Take("alice"), r.Take("alice"); first != 0 || second != time.Second {
		t.Errorf("one given back: waits %v and %v", first, second)
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

func TestPlaces(t *testing.T) {
	p := NewPlaces(3)
	first, second := p.Take("alice", 2), p.Take("alice", 2)
	if first == nil || second == nil || p.Take("alice", 2) != nil {
		t.Fatal("alice may have two")
	}
	bob := p.Take("bob", 2)
	if bob == nil || p.Take("bob", 2) != nil || p.Take("carol", 2) != nil {
		t.Error("there are three in all")
	}
	first()
	first()
	if his, all := p.Taken("alice"); his != 1 || all != 2 {
		t.Errorf("given back twice: alice has %d of %d", his, all)
	}
	second()
	bob()
	if len(p.of) != 0 || p.taken != 0 {
		t.Errorf("left behind: %v, %d", p.of, p.taken)
	}
}

func TestTurns(t *testing.T) {
	turns := NewTurns(2, 1)
	ended, end := context.WithCancel(t.Context())
	end()
	take := func(who string) func() {
		t.Helper()
		free, err := turns.Take(t.Context(), who)
		if err != nil {
			t.Fatal(err)
		}
		return free
	}
	alice := take("alice")
	waits := make(chan func())
	go func() { waits <- take("alice") }()
	bob := take("bob") // alice's second call is not in his way
	if _, err := turns.Take(ended, "carol"); !errors.Is(err, context.Canceled) {
		t.Errorf("who is not there any more: %v", err)
	}
	// Carol waits for all, and gives up with her own place taken.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := turns.Take(ctx, "carol"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third at a time: %v", err)
	}
	select {
	case <-waits:
		t.Fatal("alice has two turns")
	default:
	}
	alice()
	alice()
	again := <-waits
	bob()
	take("carol")()
	again()
	if len(turns.of) != 0 || len(turns.all) != 0 {
		t.Errorf("left behind: %v, %d", turns.of, len(turns.all))
	}
}

// Never are there more at a time than there may be, of all and of each.
func TestTurnsHold(t *testing.T) {
	turns := NewTurns(3, 2)
	var mu sync.Mutex
	now, most, of := 0, 0, map[string]int{}
	var group sync.WaitGroup
	for n := range 60 {
		who := fmt.Sprint("user ", n%3)
		group.Go(func() {
			free, err := turns.Take(t.Context(), who)
			if err != nil {
				t.Error(err)
				return
			}
			defer free()
			mu.Lock()
			now++
			of[who]++
			most = max(most, now)
			if of[who] > 2 {
				t.Errorf("%d of %s", of[who], who)
			}
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			now--
			of[who]--
			mu.Unlock()
		})
	}
	group.Wait()
	if most > 3 || len(turns.of) != 0 {
		t.Errorf("%d at a time, %d lines left behind", most, len(turns.of))
	}
}

func TestWords(t *testing.T) {
	c := newClock()
	w := NewWords(Rate{PerSecond: 0.1, Burst: 1}, 10, c.now)
	said := 0
	for range 300 {
		if left, say := w.Say("alice"); say {
			if said++; left != 0 {
				t.Errorf("%d left unsaid before the first word", left)
			}
		}
	}
	if _, bobs := w.Say("bob"); said != 1 || !bobs {
		t.Errorf("%d words of alice, of bob: %v", said, bobs)
	}
	c.at = c.at.Add(10 * time.Second)
	if left, say := w.Say("alice"); !say || left != 299 {
		t.Errorf("the next word: %v, %d left unsaid", say, left)
	}
	c.at = c.at.Add(10 * time.Second)
	if left, say := w.Say("alice"); !say || left != 0 {
		t.Errorf("and the next: %v, %d left unsaid", say, left)
	}
	for n := range 1000 {
		w.Say(fmt.Sprint("stranger ", n))
		w.Say(fmt.Sprint("stranger ", n))
	}
	if len(w.left) > 10 {
		t.Errorf("%d are kept", len(w.left))
	}
}
