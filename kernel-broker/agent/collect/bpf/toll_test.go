// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestToll(t *testing.T) {
	toll := Toll{Plain: 150, Timed: 220, Counted: 60}
	for _, c := range []struct {
		name  string
		price float64
		timed bool
		want  float64
	}{
		{"a program, and double counting", 300, false, 390},
		{"the clock of the statistics, too", 300, true, 460},
		{"ends at once", 0, false, 150},
		{"less than nothing is nothing", 40, false, 150},
	} {
		if got := toll.Of(c.price, c.timed); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// An event never costs less than its way, and a dearer program never less than a
// cheaper one.
func TestTollGrowsWithThePrice(t *testing.T) {
	for range 1000 {
		any := func() time.Duration { return time.Duration(rand.Int64N(1000)) }
		toll, price := Toll{any(), any(), any()}, rand.Float64()*1000
		if less, more := toll.Of(price, false), toll.Of(price+100, false); less < float64(toll.Plain) || more < less {
			t.Fatalf("%+v: %v for %v ns, %v for 100 more", toll, less, price, more)
		}
	}
}
