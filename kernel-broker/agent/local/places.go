package local

import (
	"fmt"
	"os"
	"sync"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// How many connections there may be at a time. Root's programs and the agent's
// own user's have theirs for themselves: an epilog must not wait for a job's user.
const (
	maxOfOne  = 8
	maxOthers = 64
	maxRoot   = 64
)

// places counts connections by user.
type places struct {
	mu     sync.Mutex
	of     map[uint32]int
	others int
	told   map[uint32]bool // refusals that the log has
}

func newPlaces() *places { return &places{of: map[uint32]int{}, told: map[uint32]bool{}} }

// take takes a place for a user. An error is for him; first says that the log
// has nothing of it yet, since he was last without a connection.
func (p *places) take(uid uint32) (free func(), first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most, trusted := maxOfOne, trusts(uid)
	if trusted {
		most = maxRoot
	}
	switch {
	case p.of[uid] >= most:
		err = fmt.Errorf("user %d has %d connections to the agent, which is the most: %w", uid, most, kernelbroker.ErrExhausted)
	case !trusted && p.others >= maxOthers:
		err = fmt.Errorf("the agent has %d connections of users, which is the most: %w", maxOthers, kernelbroker.ErrExhausted)
	}
	if err != nil {
		first = !p.told[uid] && len(p.told) < maxOthers
		if first {
			p.told[uid] = true
		}
		return nil, first, err
	}
	p.of[uid]++
	if !trusted {
		p.others++
	}
	return func() { p.free(uid, trusted) }, false, nil
}

func (p *places) free(uid uint32, trusted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !trusted {
		p.others--
	}
	if p.of[uid]--; p.of[uid] == 0 {
		delete(p.of, uid)
		delete(p.told, uid)
	}
}

// trusts are root and the agent's own user.
func trusts(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
