// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// bootLimit caches slurmctld's ResumeTimeout, which a reconfigure may change.
type bootLimit struct {
	mu   sync.Mutex
	at   time.Time
	time time.Duration
}

// bootLimitAge is how long the cached value is used.
const bootLimitAge = 5 * time.Minute

// bootLimitRetry is the wait after a failed query.
const bootLimitRetry = 10 * time.Second

// resumeTimeout is how long slurmctld waits for a node's boot; 0 if unknown.
func (c *Client) resumeTimeout(ctx context.Context) time.Duration {
	b := &c.boots
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() && time.Since(b.at) < bootLimitAge {
		return b.time
	}
	out, _, err := c.run(ctx, c.scontrol, "show", "config")
	if err != nil {
		b.at = time.Now().Add(bootLimitRetry - bootLimitAge)
		return b.time
	}
	value, _ := configured(out, "ResumeTimeout") // "60 sec"
	number, _, _ := strings.Cut(value, " ")
	seconds, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		seconds = 0
	}
	b.at, b.time = time.Now(), time.Duration(seconds)*time.Second
	return b.time
}
