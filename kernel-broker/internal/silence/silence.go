// SPDX-License-Identifier: Apache-2.0

// Package silence notices that a peer sends nothing. It counts the time for which
// somebody waits for the peer's next message, and no other: a program that is busy
// with the last message, or that did not run for a while, does not take the peer for
// silent.
package silence

import (
	"sync"
	"time"
)

// Watch watches one peer. Safe for concurrent use.
type Watch struct {
	limit func() time.Duration

	mu     sync.Mutex
	since  time.Time // when the wait began; zero while nobody waits
	late   time.Time // the wait that was too long at the last look
	timer  *time.Timer
	silent chan struct{}
}

// New returns a watch of a peer that may say nothing for as long as limit says at the
// time; 0 is for ever. Stop ends it.
func New(limit func() time.Duration) *Watch {
	return &Watch{limit: limit, silent: make(chan struct{})}
}

// Silent is closed when the peer has said nothing for too long.
func (w *Watch) Silent() <-chan struct{} { return w.silent }

// Wait is called before each wait for a message, and Heard after it.
func (w *Watch) Wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit == nil {
		return
	}
	w.since = time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.pause(0), w.look)
	}
}

// Heard says that the peer sent something.
func (w *Watch) Heard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
}

// Stop ends the watch: nobody is silent any more.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.limit = time.Time{}, nil
	if w.timer != nil {
		w.timer.Stop()
	}
}

// look is called by the timer, as a message is not to cost a timer of its own.
func (w *Watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit == nil {
		return
	}
	waited := time.Duration(0)
	if !w.since.IsZero() {
		waited = time.Since(w.since)
	}
	limit := w.limit()
	switch {
	case limit == 0 || waited < limit:
		w.timer.Reset(w.pause(waited))
	case !w.since.Equal(w.late):
		// After a pause of this host the timer comes before what has been received.
		w.late = w.since
		w.timer.Reset(min(limit/4, secondLook))
	default:
		close(w.silent)
		w.limit = nil
	}
}

// secondLook is how long a peer that seems silent has until that is certain.
const secondLook = 5 * time.Second

// idleLook is how often to look whether there is a limit by now.
const idleLook = 10 * time.Second

// pause is when to look again after somebody has waited for a while.
func (w *Watch) pause(waited time.Duration) time.Duration {
	if limit := w.limit(); limit > 0 {
		return max(limit-waited, time.Millisecond)
	}
	return idleLook
}
