// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"context"
	"testing"
	"time"
)

// A kernel that is quarantined under a switch: srun, which Slurm does not hold, ends with an error and soon, and the
// kernel runs again when it is released.
func TestQuarantineInASwitch(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.BootTime = 5 * time.Second })
	ended := make(chan Result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(s.Ctx, Limit)
		defer cancel()
		r, err := s.Exec(ctx, "alice", "srun", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm", "true")
		if err != nil {
			r.Stderr += err.Error()
		}
		ended <- r
	}()
	s.Wait(Limit, "n1 to boot", func() bool { return s.Node("n1").Kernel() == KernelNamed("mitgcm").Release })
	s.Must("root", "kernelctl", "profile", "quarantine", "mitgcm@1", "--reason", "it panics")
	select {
	case r := <-ended:
		if r.Exit == 0 {
			t.Errorf("srun: %+v", r)
		}
	case <-time.After(time.Minute):
		t.Error("srun waits for its prolog's limit")
	}
	s.Settled(Limit, "n1")
	s.Must("root", "kernelctl", "profile", "release", "mitgcm@1")
	id := s.Sbatch("alice", "0", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 1)
}
