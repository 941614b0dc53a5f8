// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"testing"
	"time"
)

// A hook that comes late, as on a busy slurmctld: the polls meanwhile see a job that the broker does not know, and nobody
// registers the node for its boot.
func TestHookIsLate(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.Broker = map[string]any{"slurm": map[string]any{"poll_busy": "100ms", "poll_idle": "200ms"}}
	})
	s.OK(write(s.Path("emulated/late"), "#!/bin/sh\n/usr/bin/sleep 1.5\nexec "+hooks+"/prolog-slurmctld\n", 0o755))
	s.edit("etc/slurm/slurm.conf", "PrologSlurmctld="+hooks+"/prolog-slurmctld", "PrologSlurmctld=/emulated/late")
	s.Must("root", "scontrol", "reconfigure")
	for range 3 {
		id := s.Sbatch("alice", "0", "-N3", "--kernel-profile=mitgcm")
		s.WaitJob(id, "COMPLETED")
		if job := s.Job(id); job["Restarts"] != "0" {
			t.Errorf("job %s was requeued %s times: %s", id, job["Restarts"], s.comment(id))
		}
		s.Settled(time.Minute)
	}
}
