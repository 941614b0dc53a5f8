// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"testing"
	"time"
)

// Of ten thousand who come at once each is told another time, and is let in then:
// nobody waits twice, and no more come in a second than may.
func TestTurns(t *testing.T) {
	c := newClock()
	turns := NewTurns(Rate{PerSecond: 500, Burst: 500}, 20_000, c.now)
	begin := c.at
	const callers = 10_000
	at := map[int][]string{} // by second
	last := time.Duration(0)
	for n := range callers {
		key := fmt.Sprint("n", n)
		wait := turns.Take(key)
		if wait < last {
			t.Fatalf("caller %d waits %v, the one before %v", n, wait, last)
		}
		last = wait
		at[int((wait+time.Second-1)/time.Second)] = append(at[int((wait+time.Second-1)/time.Second)], key)
	}
	if want := (callers - 500) * time.Second / 500; last != want {
		t.Errorf("the last one waits %v, want %v", last, want)
	}
	for second := 1; second <= int(last/time.Second); second++ {
		early := at[second][len(at[second])-1]
		if wait := turns.Take(early); wait <= 0 {
			t.Fatalf("second %d: %s is let in before its turn", second, early)
		}
		c.at = begin.Add(time.Duration(second) * time.Second)
		if n := len(at[second]); n > 500 {
			t.Errorf("second %d: %d are told to come", second, n)
		}
		for _, key := range at[second] {
			if wait := turns.Take(key); wait != 0 {
				t.Fatalf("second %d: %s has to wait %v again", second, key, wait)
			}
		}
	}
	if len(turns.booked) != 0 {
		t.Errorf("%d turns are left", len(turns.booked))
	}
}

// Turns that are missed do not fill the memory, and count for nothing later.
func TestMissedTurns(t *testing.T) {
	c := newClock()
	turns := NewTurns(Rate{PerSecond: 1, Burst: 1}, 10, c.now)
	for n := range 1000 {
		turns.Take(fmt.Sprint("n", n))
	}
	if len(turns.booked) != 10 {
		t.Errorf("%d turns are kept", len(turns.booked))
	}
	if wait := turns.Take("more"); wait != 11*time.Second {
		t.Errorf("who has no turn may ask again in %v", wait)
	}
	c.at = c.at.Add(time.Hour)
	for n := range 3 {
		if wait := turns.Take("n5"); wait > time.Second || (wait == 0) != (n == 0) {
			t.Errorf("an hour late, call %d: wait %v", n, wait)
		}
	}
	turns.Take("a")
	if turns.Take("b"); len(turns.booked) > 3 {
		t.Errorf("%d turns are kept", len(turns.booked))
	}
}
