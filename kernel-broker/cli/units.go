// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"
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
