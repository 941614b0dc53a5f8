// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"
)

// restart is slurmctld going away and coming back: it runs the prologs again,
// forgets that it waits for boots, and asks the nodes to register a little later.
func (s *simSlurm) restart() {
	s.w.tell("slurmctld restarts")
	for _, j := range s.jobs {
		if j.state == "CONFIGURING" {
			j.prolog = simProlog{begun: s.w.now}
		}
	}
	asks := s.w.now.Add(s.w.between(500*time.Millisecond, 4*time.Second))
	for _, n := range s.nodes {
		n.poweringUp, n.unheard = false, false
		n.available, n.active = simFeature, simFeature
		n.unknown, n.asks = !n.down && !n.issued, asks
	}
}

// slurmctld restarted at any moment costs a job at most another start. A node
// that boots right after its old slurmd has answered may be taken for one that
// crashed, but not under a job that runs, and it comes back without help.
func TestSimulationOfRestarts(t *testing.T) {
	jobs, requeued, unexpected := 0, 0, 0
	simulate(t, func(t *testing.T, seed uint64) {
		w := newSimWorld(t, seed, 2)
		w.run(5*time.Second, nil)
		for range 8 {
			w.submitSome(1, []string{"", "mitgcm", "mitgcm", "lammps"}, 0)
			last := w.slurm.jobs[len(w.slurm.jobs)-1]
			w.run(time.Minute, func() bool { return last.state == "CONFIGURING" })
			w.run(w.between(0, 3*time.Second), nil)
			w.slurm.restart()
		}
		if !w.run(20*time.Minute, w.allEnded) {
			w.fail("jobs did not end")
		}
		if !w.run(3*time.Minute, w.quiet) {
			w.fail("the nodes did not come back")
		}
		for _, j := range w.slurm.jobs {
			if j.runs != 1 {
				w.fail("job %d ran %d times", j.id, j.runs)
			}
			requeued += int(j.restart)
			jobs++
		}
		unexpected += w.unexpected
	})
	t.Logf("%d jobs, %d requeues, %d nodes taken for crashed", jobs, requeued, unexpected)
	if requeued*5 > jobs {
		t.Errorf("of %d jobs %d were requeued: slurmctld takes a boot that it has forgotten all the same", jobs, requeued)
	}
}
