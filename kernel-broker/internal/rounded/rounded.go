// SPDX-License-Identifier: Apache-2.0

// Package rounded writes durations and sizes as people read them, in every place alike.
package rounded

import (
	"fmt"
	"math"
	"time"

	"github.com/dustin/go-humanize"
)

// Size writes a number of bytes for people.
func Size(n uint64) string { return humanize.IBytes(n) }

// Time rounds a duration for people: two units at most, and no more digits than a reader compares.
func Time(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Time(-d)
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return "<1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 99500*time.Millisecond:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return inTwo(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return inTwo(d, time.Hour, "h", time.Minute, "min")
	}
	return inTwo(d, 24*time.Hour, "d", time.Hour, "h")
}

// inTwo writes a duration in a large unit and a small one.
func inTwo(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	n := int64(math.Round(float64(d) / float64(small)))
	each := int64(large / small)
	if n%each == 0 {
		return fmt.Sprintf("%d %s", n/each, largeName)
	}
	return fmt.Sprintf("%d %s %d %s", n/each, largeName, n%each, smallName)
}
