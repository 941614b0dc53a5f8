// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"slices"
	"sync"
)

// slots are the machine's: so many steps work at once. Of those that wait, the
// one that stands first in the graph is next, so that a run with one slot goes
// through the graph in its order.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []waiter
}

type waiter struct {
	place int
	turn  chan struct{}
}

// take waits for a slot, and returns what gives it back.
func (s *slots) take(ctx context.Context, place int) (func(), error) {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return s.give, nil
	}
	mine := waiter{place: place, turn: make(chan struct{})}
	s.waiting = append(s.waiting, mine)
	s.mu.Unlock()
	select {
	case <-mine.turn:
		return s.give, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.waiting, func(w waiter) bool { return w.turn == mine.turn }); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return nil, ctx.Err()
	}
	// It was given at the same moment, and is passed on.
	s.pass()
	return nil, ctx.Err()
}

func (s *slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass()
}

// pass hands a slot to who is next; s.mu is held.
func (s *slots) pass() {
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	next := 0
	for i, w := range s.waiting {
		if w.place < s.waiting[next].place {
			next = i
		}
	}
	close(s.waiting[next].turn)
	s.waiting = slices.Delete(s.waiting, next, next+1)
}
