// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// That a failed job is back in the queue is what slurmctld shows, and not what was asked of it.
func TestRequeuedIsWhatSlurmShows(t *testing.T) {
	for name, c := range map[string]struct {
		queue []kb.SlurmJob
		want  bool
	}{
		"its next run waits":   {[]kb.SlurmJob{{ID: 7, Restart: 1, State: "PENDING"}}, true},
		"another job waits":    {[]kb.SlurmJob{{ID: 8, Restart: 1, State: "PENDING"}}, false},
		"an srun that is over": {nil, false},
	} {
		a := &kb.Allocation{ID: kb.JobID{Job: 7}, Phase: kb.PhaseFailed}
		w := newWorld(t)
		w.slurm.Queue = c.queue
		a.Created = w.now.Add(-time.Minute)
		w.slurm.At = w.now
		w.allocs[a.ID] = a
		w.decide()
		if len(w.closed) != 1 { // it has no nodes to return
			t.Fatalf("%s: %+v", name, w.allocs[a.ID])
		}
		if got := w.closed[0]; got.Requeued != c.want || got.Ended.IsZero() {
			t.Errorf("%s: requeued %v, want %v", name, got.Requeued, c.want)
		}
	}
}
