// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"strings"
	"testing"
	"time"
)

// Nodes have a GPU, and the kernel of mitgcm has no driver for it. slurmd then ends at its start, where gres.conf names the
// device, or registers without a GPU, where it finds devices by itself. Slurm requeues such a job; without end, were it
// not held with the reason. The node returns, and its GPU is there for the next job.
func TestKernelWithoutADriver(t *testing.T) {
	for name, c := range map[string]struct{ without, reason string }{
		"slurmd ends":     {"Name=gpu File=/machine/gpu0\n", "slurmd has not registered 1m"},
		"slurmd finds it": {"", "slurmd registers with less than slurm.conf says"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, func(o *Options) {
				o.Nodes, o.ResumeTimeout = 1, 70*time.Second
				o.Lines = append(o.Lines, "GresTypes=gpu", "NodeName=DEFAULT Gres=gpu:1")
				o.GresConf = map[string]string{StockName: "Name=gpu File=/dev/null\n", "mitgcm": c.without}
			})
			id := s.Sbatch("alice", "0", "-N1", "--gres=gpu:1", "--kernel-profile=mitgcm")
			s.Wait(3*Limit, "job "+id+" to be held", func() bool { return s.Job(id)["Priority"] == "0" }, func() string { return s.State(id) })
			if comment := s.Job(id)["AdminComment"]; !strings.Contains(comment, c.reason) {
				t.Errorf("the job says %q", comment)
			}
			s.Settled(2 * Limit)
			if line := s.NodeLine("n1"); strings.Contains(line, "INVAL") || strings.Contains(line, "DRAIN") {
				t.Errorf("back on stock, n1 is %s", line)
			}
			plain := s.Sbatch("alice", "0", "-N1", "--gres=gpu:1")
			s.WaitJob(plain, "COMPLETED")
			if boots := s.BootsOf("n1"); len(boots) != 3 {
				t.Errorf("boots of n1: %v", boots)
			}
			s.Must("alice", "scancel", id)
		})
	}
}
