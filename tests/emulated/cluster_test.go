// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import "testing"

// The main job: two nodes switch, the job runs on its kernel, the nodes return.
func TestMainJob(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	id := s.Sbatch("alice", "0", "-N2", "--kernel-profile=mitgcm")
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 2)
	s.Settled(Limit)
	plain := s.Sbatch("bob", "0", "-N3")
	s.WaitJob(plain, "COMPLETED")
	s.RanOn("bob", plain, "stock", 3)
	if n := s.Kexecs(); n != 4 {
		t.Errorf("%d kexecs, want 4", n)
	}
}
