// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// A run without its kernel is called what became of its job.
func TestPhaseOfAJobWithoutItsKernel(t *testing.T) {
	for want, a := range map[string]kb.Allocation{
		"failed":   {Phase: kb.PhaseFailed, Hold: true}, // Slurm has not said yet, or ended it
		"held":     {Phase: kb.PhaseFailed, Hold: true, Requeued: true},
		"requeued": {Phase: kb.PhaseFailed, Requeued: true},
		"ready":    {Phase: kb.PhaseReady},
	} {
		if got := Word(JobToProto(&a).GetPhase()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
