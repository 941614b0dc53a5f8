// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// delivered is the result that the broker has.
func (w *world) delivered() profiling.Result {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	content, err := os.ReadFile(w.got[0].Path)
	if err != nil {
		w.t.Fatal(err)
	}
	result, err := profiling.ParseResult(content)
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// Slurm removes the job's cgroup late, when the collectors are attached to it for the next step.
func TestCgroupRemovedBetweenSteps(t *testing.T) {
	for name, step := range map[string]bool{"a step follows": true, "no step follows": false} {
		t.Run(name, func(t *testing.T) {
			w := looking(t)
			w.populate(0)
			w.mu.Lock()
			left, ready := 0, 0
			w.onReport = func(state string) {
				switch {
				case strings.Contains(state, "have left this node"):
					if left++; left == 1 || step {
						w.populate(1)
					}
				case strings.Contains(state, "3 ready"):
					if ready++; ready == 1 {
						w.populate(0)
					}
				}
			}
			w.mu.Unlock()
			w.sessions[0].Stop("")
			w.until("the cgroup is watched again", func() bool { return ready == 1 })
			w.sessions[1].Stop("") // as the real one does when the cgroup is gone
			if step {
				w.until("the next step is followed", w.said("3 looking"))
				w.until("by a session of its own", func() bool { return len(w.sessions) == 3 })
				w.end(2)
			} else {
				w.desired(func(r *kb.DesiredRun) { r.Ended = true })
			}
			w.until("it is delivered", func() bool { return len(w.got) == 1 })
			// What the unused session found, nothing, is no part of it.
			parts := map[bool]int{true: 2, false: 1}[step]
			if r := w.delivered(); len(r.Nodes) != parts || w.partial != whyLate {
				t.Errorf("%d parts, want %d; partial: %q", len(r.Nodes), parts, w.partial)
			}
		})
	}
}

// A job of many steps leaves one result behind, not one for each step.
func TestManySteps(t *testing.T) {
	const steps = 5
	w := looking(t)
	w.mu.Lock()
	w.onReport = func(state string) {
		if strings.Contains(state, "have left this node") {
			w.populate(1)
		}
	}
	w.mu.Unlock()
	for step := range steps {
		w.until("the step is followed", func() bool { return len(w.sessions) == step+1 })
		w.until("the job is seen", w.atWork)
		if names, err := filepath.Glob(filepath.Join(w.dir, "runs", "3", "*"+earlierSuffix)); err != nil || len(names) > 1 {
			t.Errorf("step %d: %q, %v", step, names, err)
		}
		if step < steps-1 {
			w.populate(0)
			w.sessions[step].Stop("")
		}
	}
	w.end(steps - 1)
	w.until("it is delivered", func() bool { return len(w.got) == 1 })
	if r := w.delivered(); len(r.Nodes) != steps || w.partial != whyLate {
		t.Errorf("%d parts; partial: %q", len(r.Nodes), w.partial)
	}
}
