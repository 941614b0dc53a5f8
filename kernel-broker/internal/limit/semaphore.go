// SPDX-License-Identifier: Apache-2.0

package limit

import "sync"

// Semaphore counts what each key and all keys hold at the same time. It never
// waits. Safe for concurrent use.
type Semaphore struct {
	all int // 0: no common limit

	mu    sync.Mutex
	held  map[string]int
	total int
}

// NewSemaphore limits all keys together to all; 0 is no limit.
func NewSemaphore(all int) *Semaphore { return &Semaphore{all: all, held: map[string]int{}} }

// TryAcquire takes one of key's most. It returns nil if there is none left, else
// the function that releases it, which may be called more than once.
func (s *Semaphore) TryAcquire(key string, most int) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[key] >= most || s.all > 0 && s.total >= s.all {
		return nil
	}
	s.held[key]++
	s.total++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if s.held[key]--; s.held[key] == 0 {
			delete(s.held, key)
		}
	})
}

// Held returns how many key holds, and all keys together.
func (s *Semaphore) Held(key string) (own, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[key], s.total
}
