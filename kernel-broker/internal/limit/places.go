// SPDX-License-Identifier: Apache-2.0

package limit

import "sync"

// Places counts what each of many holds at the same time, and all together.
// Safe for concurrent use.
type Places struct {
	all int // 0: as many as each may have

	mu    sync.Mutex
	of    map[string]int
	taken int
}

// NewPlaces makes so many places; 0 stands for no end of them.
func NewPlaces(all int) *Places { return &Places{all: all, of: map[string]int{}} }

// Take takes a place for who, who may have that many. The place is given back
// by calling free, once or more often; it is nil where there was none.
func (p *Places) Take(who string, most int) (free func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[who] >= most || p.all > 0 && p.taken >= p.all {
		return nil
	}
	p.of[who]++
	p.taken++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		if p.of[who]--; p.of[who] == 0 {
			delete(p.of, who)
		}
	})
}

// Taken returns how many places are taken, by who and by all.
func (p *Places) Taken(who string) (his, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[who], p.taken
}
