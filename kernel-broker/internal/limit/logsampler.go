// SPDX-License-Identifier: Apache-2.0

package limit

import "sync"

// LogSampler rate-limits log lines per key and counts the lines left out. Safe
// for concurrent use.
type LogSampler struct {
	rates *Rates

	mu   sync.Mutex
	left map[string]int
}

// NewLogSampler allows each key's lines at rate r.
func NewLogSampler(r Rate) *LogSampler {
	return &LogSampler{rates: NewRates(r, DefaultKeep, nil), left: map[string]int{}}
}

// Sample reports whether to write a line about key, and how many were left out
// since the last one.
func (s *LogSampler) Sample(key string) (left int, write bool) {
	if s.rates.Take(key) > 0 {
		s.Skip(key)
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left = s.left[key]
	delete(s.left, key)
	return left, true
}

// Skip counts a line about key that is not worth writing.
func (s *LogSampler) Skip(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := s.left[key]; has || len(s.left) < s.rates.keep {
		s.left[key]++
	}
}
