// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Watch has one line, and waits for the end.
func (l *fakeSession) Watch(ctx context.Context, hand func([]byte)) {
	hand([]byte("figures"))
	select {
	case <-ctx.Done():
	case <-l.ended:
	}
}

// The broker gets figures only while somebody watches the job.
func TestFiguresWhileWatched(t *testing.T) {
	w := looking(t)
	if w.said("figures")() {
		t.Errorf("nobody watches: %q", w.states)
	}
	w.desired(func(r *kb.DesiredRun) { r.Watched = true })
	w.until("figures come", w.said("3  figures"))
	w.desired(nil)
	w.end(0)
	w.until("it is delivered", func() bool { return len(w.got) > 0 })
}
