// SPDX-License-Identifier: Apache-2.0

// Package hostclock says how fast this host's time stamp counter counts. An
// emulated guest reads that same counter, and measures its frequency at boot
// against an emulated timer that a busy host serves late: of 172 boots one took
// 2,596 MHz for 23, and its clock went 112 times too fast until another clock was
// found to go better, 132 s later. Told the frequency, a guest needs no measuring.
package hostclock

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Arguments are what tells a guest's kernel: `tsc_early_khz=...`, or nothing where
// there is no such counter.
func Arguments() []string {
	khz := measured()
	if khz == 0 {
		return nil
	}
	return []string{fmt.Sprintf("tsc_early_khz=%d", khz)}
}

// measured is in kHz, 0 for none. One in a hundred is what Linux allows it to be
// wrong by; it is far better than that.
var measured = sync.OnceValue(func() int { return int(math.Round(measure(100 * time.Millisecond))) })

// measure is how many kHz the counter does, for as long.
func measure(long time.Duration) float64 {
	begin := read()
	time.Sleep(long)
	end := read()
	return float64(end.count-begin.count) / (end.at - begin.at).Seconds() / 1000
}

// reading is a count and when it was so, by the host's monotonic clock.
type reading struct {
	count uint64
	at    time.Duration
}

// read takes the quickest of some tries: this process may lose its processor
// between the clock and the counter.
func read() reading {
	var best reading
	spent := time.Duration(math.MaxInt64)
	for range 50 {
		before := time.Since(start)
		count := counter()
		after := time.Since(start)
		if after-before < spent {
			spent, best = after-before, reading{count: count, at: before + (after-before)/2}
		}
	}
	return best
}

var start = time.Now()
