// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"os"
	"sync"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Limits of concurrent connections to a socket. Root and the agent's own user have separate ones: an epilog must not wait
// for a job's user.
const (
	MaxPerUser = 8
	maxUsers   = 64
	maxRoot    = 64
)

// connections counts connections by user.
type connections struct {
	mu     sync.Mutex
	of     map[uint32]int
	users  int
	logged map[uint32]bool // refusals that the log has
}

// acquire takes a slot for a user. The error is for that user; first reports the first refusal since the user's last
// connection, for the log.
func (c *connections) acquire(uid uint32) (release func(), first bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of, c.logged = map[uint32]int{}, map[uint32]bool{}
	}
	most, trusted := MaxPerUser, trusts(uid)
	if trusted {
		most = maxRoot
	}
	switch {
	case c.of[uid] >= most:
		err = fmt.Errorf("user %d has %d connections to the agent, which is the most: %w", uid, most, kb.ErrExhausted)
	case !trusted && c.users >= maxUsers:
		err = fmt.Errorf("the agent has %d connections of users, which is the most: %w", maxUsers, kb.ErrExhausted)
	}
	if err != nil {
		first = !c.logged[uid] && len(c.logged) < maxUsers
		if first {
			c.logged[uid] = true
		}
		return nil, first, err
	}
	c.of[uid]++
	if !trusted {
		c.users++
	}
	return func() { c.release(uid, trusted) }, false, nil
}

func (c *connections) release(uid uint32, trusted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !trusted {
		c.users--
	}
	if c.of[uid]--; c.of[uid] == 0 {
		delete(c.of, uid)
		delete(c.logged, uid)
	}
}

// trusts reports whether a user is root or the agent's own.
func trusts(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
