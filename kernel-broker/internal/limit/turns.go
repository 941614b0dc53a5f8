// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"sync"
)

// Turns are for what only a few may do at a time, and each of those who come
// less: whoever finds no place waits for his turn. Safe for concurrent use.
type Turns struct {
	each int
	all  chan struct{}

	mu sync.Mutex
	of map[string]*line
}

// line is one's own places, as long as somebody has or wants one.
type line struct {
	places chan struct{}
	here   int
}

// NewTurns lets so many at a time, and no more than each of one.
func NewTurns(all, each int) *Turns {
	return &Turns{each: each, all: make(chan struct{}, all), of: map[string]*line{}}
}

// Take waits for a turn of who, first among his own, then among all. It is over
// when free is called, once or more often; ctx ends the wait with its error.
func (t *Turns) Take(ctx context.Context, who string) (free func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	own := t.enter(who)
	for i, places := range []chan struct{}{own.places, t.all} {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-own.places
			}
			t.leave(who, own)
			return nil, ctx.Err()
		}
	}
	return sync.OnceFunc(func() {
		<-t.all
		<-own.places
		t.leave(who, own)
	}), nil
}

func (t *Turns) enter(who string) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[who]
	if own == nil {
		own = &line{places: make(chan struct{}, t.each)}
		t.of[who] = own
	}
	own.here++
	return own
}

func (t *Turns) leave(who string, own *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.here--; own.here == 0 {
		delete(t.of, who)
	}
}
