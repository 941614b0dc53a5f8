// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// An agent that is stopped, or was killed, and the one after it.
func TestAgentRestartsDuringJob(t *testing.T) {
	w := looking(t)
	w.keeper.Close()
	if w.sessions[0].why != whyAgent || len(w.got) != 0 {
		t.Fatalf("stopped with %q, delivered %v", w.sessions[0].why, w.got)
	}
	w.start()
	w.desired(nil)
	w.until("it looks again", func() bool { return len(w.sessions) == 2 })
	w.end(1)
	w.until("both parts are delivered, and what is between them is missing",
		func() bool { return len(w.got) == 1 && w.partial == whyAgent+"; "+whyLate })
	content, err := os.ReadFile(w.got[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := profiling.ParseResult(content); err != nil || len(r.Nodes) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A result that is not delivered is kept by the agents that follow, with each part once.
func TestAgentRestartsBeforeDelivery(t *testing.T) {
	for _, c := range []struct {
		name   string
		broken error
		nodes  int
	}{
		{"two parts", nil, 2},
		{"one part and a note", errors.New("disk full"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := looking(t)
			w.keeper.Close()
			w.broken, w.delivers = c.broken, []error{fmt.Errorf("x: %w", kb.ErrUnavailable)}
			w.start()
			w.desired(nil)
			w.until("it looks again", func() bool { return len(w.sessions) == 2 })
			w.end(1)
			for range 2 {
				w.until("a delivery", func() bool { return w.tries > 0 })
				w.keeper.Close()
				w.tries = 0
				w.start()
				w.desired(func(r *kb.DesiredRun) { r.Ended = true })
			}
			w.mu.Lock()
			w.delivers = nil
			w.mu.Unlock()
			w.until("it is delivered, with what is missing", func() bool { return len(w.got) == 1 && w.partial == whyAgent+"; "+whyLate })
			content, err := os.ReadFile(w.got[0].Path)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := profiling.ParseResult(content); err != nil || len(r.Nodes) != c.nodes {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

func TestAgentRestartsAfterJob(t *testing.T) {
	w := looking(t)
	w.keeper.Close()
	w.populate(0)
	w.start()
	w.desired(func(r *kb.DesiredRun) { r.Ended = true })
	w.until("what was left is delivered", func() bool { return len(w.got) == 1 && w.partial == whyAgent })
	w.keeper.Close()
	w.got = nil
	if err := os.RemoveAll(filepath.Join(w.dir, "runs", "3")); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.desired(func(r *kb.DesiredRun) { r.Ended = true })
	w.until("nothing is left of it", w.said("3 failed "+errNobody.Error()))
}
