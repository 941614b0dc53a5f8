// SPDX-License-Identifier: Apache-2.0

// Package quantile has the quantile of times that programs print. It is apart from
// stats, whose numerical library the broker, the agent and the hooks do without.
package quantile

import (
	"math"
	"slices"
	"time"
)

// NearestRank is the nearest-rank quantile of the known times; negative if there is none.
func NearestRank(times []time.Duration, q float64) time.Duration {
	known := slices.DeleteFunc(slices.Clone(times), func(d time.Duration) bool { return d < 0 })
	if len(known) == 0 {
		return -1
	}
	slices.Sort(known)
	rank := int(math.Ceil(q*float64(len(known)) - 1e-9))
	return known[min(max(rank, 1), len(known))-1]
}
