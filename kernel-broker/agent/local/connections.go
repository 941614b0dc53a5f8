// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"os"
	"strconv"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

// Limits of concurrent connections to a socket. Root and the agent's own user have separate ones: an epilog must not wait
// for a job's user.
const (
	MaxPerUser = 8
	maxUsers   = 64
	maxRoot    = 64
)

// connections counts connections by user, and limits log lines about refusals.
type connections struct {
	users, trusted *limit.Semaphore
	log            *limit.LogSampler
}

func newConnections() connections {
	return connections{limit.NewSemaphore(maxUsers), limit.NewSemaphore(0), limit.NewLogSampler(limit.Rate{PerSecond: 1. / 60, Burst: 1})}
}

// acquire takes a slot for a user. The error is for that user; write reports whether the log gets it, too.
func (c connections) acquire(uid uint32) (release func(), write bool, err error) {
	held, most := c.users, MaxPerUser
	if trusts(uid) {
		held, most = c.trusted, maxRoot
	}
	user := strconv.FormatUint(uint64(uid), 10)
	if release = held.TryAcquire(user, most); release != nil {
		return release, false, nil
	}
	err = fmt.Errorf("the agent has %d connections of users, the limit: %w", maxUsers, kb.ErrExhausted)
	if own, _ := held.Held(user); own >= most {
		err = fmt.Errorf("user %s has %d connections to the agent, the limit: %w", user, most, kb.ErrExhausted)
	}
	_, write = c.log.Sample(user)
	return nil, write, err
}

// trusts reports whether a user is root or the agent's own.
func trusts(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
