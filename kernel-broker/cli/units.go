// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"time"

	"github.com/dustin/go-humanize"
)

// clock prints a time of the reader's zone, with the zone.
func clock(t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// minute is a time in a table, of whose column zoned is the title.
func minute(t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04")
}

// newest of the times that rows have; the zero time if none has one.
func newest[T any](rows []T, at func(T) time.Time) (last time.Time) {
	for _, row := range rows {
		if t := at(row); t.After(last) {
			last = t
		}
	}
	return last
}

// zoned is the title of a column of times. Summer and winter may be in one table: then each has its offset in the zone
// that the title names, as in the output of Slurm.
func zoned(title string, newest time.Time) string {
	if newest.IsZero() || newest.Unix() == 0 {
		return title
	}
	return title + " (" + newest.Local().Format("MST") + ")"
}

func bytesOf(n uint64) string { return humanize.IBytes(n) }

// seconds rounds a duration for people: two units at most, and no more digits than a reader compares.
func seconds(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + seconds(-d)
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
