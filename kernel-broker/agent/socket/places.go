// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"fmt"
	"os"
	"sync"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Limits of concurrent connections. Root and the agent's own user have separate ones: an epilog must not wait for a
// job's user.
const (
	MaxOfOne  = 8
	MaxOthers = 64
	MaxRoot   = 64
)

// Places counts connections by user. Safe for concurrent use.
type Places struct {
	mu     sync.Mutex
	of     map[uint32]int
	others int
	logged map[uint32]bool // refusals that the log has
}

// NewPlaces returns an empty semaphore.
func NewPlaces() *Places { return &Places{of: map[uint32]int{}, logged: map[uint32]bool{}} }

// Take acquires a place for a user. The error is for that user; first reports the first refusal since the user's last
// connection, for the log.
func (p *Places) Take(uid uint32) (free func(), first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most, trusted := MaxOfOne, Trusts(uid)
	if trusted {
		most = MaxRoot
	}
	switch {
	case p.of[uid] >= most:
		err = fmt.Errorf("user %d has %d connections to the agent, which is the most: %w", uid, most, kb.ErrExhausted)
	case !trusted && p.others >= MaxOthers:
		err = fmt.Errorf("the agent has %d connections of users, which is the most: %w", MaxOthers, kb.ErrExhausted)
	}
	if err != nil {
		first = !p.logged[uid] && len(p.logged) < MaxOthers
		if first {
			p.logged[uid] = true
		}
		return nil, first, err
	}
	p.of[uid]++
	if !trusted {
		p.others++
	}
	return func() { p.free(uid, trusted) }, false, nil
}

// Of is the number of a user's connections.
func (p *Places) Of(uid uint32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[uid]
}

func (p *Places) free(uid uint32, trusted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !trusted {
		p.others--
	}
	if p.of[uid]--; p.of[uid] == 0 {
		delete(p.of, uid)
		delete(p.logged, uid)
	}
}

// Trusts reports whether a user is root or the agent's own.
func Trusts(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
