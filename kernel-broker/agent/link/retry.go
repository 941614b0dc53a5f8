// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/retryinfo"
)

// The first try to connect again comes quickly, since a broker that was restarted is
// back at once.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	// maxTold is the longest pause that a broker may ask for.
	maxTold = 10 * time.Minute
)

// retry decides when to come back. What is known decides, in this order: the time that
// the broker said with its refusal; the time over which it has its agents return; and
// else the number of tries that failed. All of it with jitter, so that the agents of a
// cluster do not come as one.
type retry struct{ limit time.Duration }

// pause is how long to wait after a stream that lasted for a while.
func (r *retry) pause(err error, lasted, spread time.Duration) time.Duration {
	if wait, said := retryinfo.After(err); said {
		return min(wait, maxTold) + upTo(min(wait, maxTold)/8)
	}
	if lasted > maxBackoff {
		r.limit = 0
	}
	r.limit = min(max(2*r.limit, minBackoff), maxBackoff)
	if status.Code(err) == codes.Unavailable && lasted > maxBackoff {
		// The broker went away under all agents. Whose node alone lost it waits, too.
		return upTo(max(spread, r.limit))
	}
	return upTo(r.limit)
}

func upTo(most time.Duration) time.Duration {
	return rand.N(most + 1) //nolint:gosec // G404: spreads the nodes over time; nobody gains by guessing it
}
