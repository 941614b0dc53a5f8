// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"sync"
	"time"
)

// Words bound how often the same one is complained of, and count what was left
// unsaid of him, for when there is something to say again. Safe for concurrent
// use.
type Words struct {
	rates *Rates
	keep  int

	mu   sync.Mutex
	left map[string]int
}

// NewWords counts up to keep of them one by one, and those beyond together; now
// may be nil.
func NewWords(r Rate, keep int, now func() time.Time) *Words {
	return &Words{rates: NewRates(r, keep, now), keep: keep, left: map[string]int{}}
}

// Say reports whether to speak of who, and if so, how often it was not done since
// it was done last.
func (w *Words) Say(who string) (left int, say bool) {
	say = w.rates.Take(who) == 0
	w.mu.Lock()
	defer w.mu.Unlock()
	if say {
		left = w.left[who]
		delete(w.left, who)
		return left, true
	}
	w.leaveOutLocked(who)
	return 0, false
}

// LeaveOut counts what was not worth a word of who, beside what there was no word
// left for.
func (w *Words) LeaveOut(who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveOutLocked(who)
}

func (w *Words) leaveOutLocked(who string) {
	if _, has := w.left[who]; has || len(w.left) < w.keep {
		w.left[who]++
	}
}
