// SPDX-License-Identifier: Apache-2.0

package quantile

import (
	"testing"
	"time"
)

func TestNearestRank(t *testing.T) {
	var times []time.Duration
	for i := range 20 {
		times = append(times, time.Duration(20-i)*time.Second, -1)
	}
	for q, want := range map[float64]time.Duration{0: time.Second, 0.5: 10 * time.Second, 0.95: 19 * time.Second, 1: 20 * time.Second} {
		if got := NearestRank(times, q); got != want {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if got := NearestRank([]time.Duration{-1}, 0.5); got >= 0 {
		t.Errorf("of nothing: %v", got)
	}
}
