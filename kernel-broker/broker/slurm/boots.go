// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// bootLimit is slurmctld's ResumeTimeout, which it may read anew.
type bootLimit struct {
	mu   sync.Mutex
	at   time.Time
	time time.Duration
}

// bootLimitAge is how long what was read is believed.
const bootLimitAge = 5 * time.Minute

// bootLimitRetry is when to ask again after there was no answer.
const bootLimitRetry = 10 * time.Second

// resumeTimeout is how long slurmctld waits for a node's boot; 0 if it does not
// say.
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
