// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Where Slurm never waits for a boot a job is not tried without end. What its runs ended for otherwise does not count.
func TestBootsThatSlurmMisses(t *testing.T) {
	for _, c := range []struct {
		restart, before uint32
		hold            bool
	}{
		{0, 0, false}, {9, 0, false}, {9, maxMissed - 1, false}, {maxMissed, maxMissed, true},
	} {
		w := steadyOnStock(t, "n1")
		w.slurm.Jobs[7] = kb.SlurmJob{ID: 7, Restart: c.restart}
		w.job(7, "CONFIGURING", true, "n1")
		w.node("n1", "ALLOCATED", "")
		a := w.ensure(7, mit, "n1")
		a.Missed = c.before
		w.settle()
		a = w.allocs[a.ID]
		if a.Phase != kb.PhaseFailed || a.Hold != c.hold || a.Missed != c.before+1 {
			t.Errorf("restart %d after %d: %s, hold %v, missed %d: %s", c.restart, c.before, a.Phase, a.Hold, a.Missed, a.Reason)
		}
	}
	if a := running(t).allocs[kb.JobID{Job: 7}]; a.Missed != 0 {
		t.Errorf("a run that began counts as missed")
	}
}
