// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"
	"testing"
	"time"
)

// Passes show that they go on, and one that hangs shows nothing.
func TestPassesShowThatTheyGoOn(t *testing.T) {
	var alive atomic.Int64
	f := newFixture(t)
	f.alive = func() { alive.Add(1) }
	f.start()
	goesOn := func(what string) {
		t.Helper()
		for begun, before := time.Now(), alive.Load(); alive.Load() < before+3; time.Sleep(5 * time.Millisecond) {
			if time.Since(begun) > 20*time.Second {
				t.Fatalf("%s: no sign of life", what)
			}
		}
	}
	goesOn("a controller")
	f.c.mu.Lock()
	time.Sleep(1200 * time.Millisecond) // the pass that hangs has begun
	before := alive.Load()
	time.Sleep(2500 * time.Millisecond) // two passes would have begun
	after := alive.Load()
	f.c.mu.Unlock()
	if after != before {
		t.Errorf("%d signs of life while a pass hangs", after-before)
	}
	goesOn("a pass that went on")
}
