// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"strconv"
	"strings"
	"time"
)

const (
	// keepResumeTimeout is how long the value is used: a reconfigure may change it.
	keepResumeTimeout = 5 * time.Minute
	// resumeTimeoutRetry is the wait after a failed query.
	resumeTimeoutRetry = 10 * time.Second
)

// resumeTimeout is how long slurmctld waits for a node's boot; 0 if unknown.
func (c *Client) resumeTimeout(ctx context.Context) time.Duration {
	timeout, _ := c.timeouts.GetOrLast(ctx, struct{}{}, resumeTimeoutRetry, func(ctx context.Context) (time.Duration, time.Duration, error) {
		value, err := c.setting(ctx, "ResumeTimeout") // "60 sec"
		number, _, _ := strings.Cut(value, " ")
		seconds, perr := strconv.ParseUint(number, 10, 31)
		if perr != nil {
			seconds = 0
		}
		return time.Duration(seconds) * time.Second, keepResumeTimeout, err
	})
	return timeout
}
