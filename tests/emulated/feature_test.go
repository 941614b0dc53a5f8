// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// sinfo shows the kernel that a node is proven to run, beside the site's own features, which jobs go on to ask for. slurmctld
// forgets it at a restart and is told again.
func TestActiveFeatures(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]string{"with features": "gpu,ib", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, func(o *Options) {
				o.Nodes, o.ReturnToService = 3, 2
				if own != "" {
					o.Lines = append(o.Lines, "NodeName=DEFAULT Feature="+own)
				}
			})
			shown := func(node string) string {
				_, features, _ := strings.Cut(s.Must("root", "sinfo", "--noheader", "--nodes="+node, "--partition=main", "--format=%N %b"), " ")
				return strings.TrimSuffix(strings.TrimSpace(features), "(null)")
			}
			until := func(what string, want map[string]string) {
				t.Helper()
				s.Wait(Limit, what, func() bool {
					for node, features := range want {
						if shown(node) != features {
							return false
						}
					}
					return true
				}, func() string { return shown("n1") + " " + shown("n2") + " " + shown("n3") })
			}
			mitgcm := strings.TrimPrefix(own+",kernel=mitgcm", ",")
			args := []string{"-N2", "--nodelist=n1,n2", "--kernel-profile=mitgcm"}
			if own != "" {
				args = append(args, "--constraint="+own[:3])
			}
			id := s.Sbatch("alice", "600", args...)
			until("the kernel of n1 and n2", map[string]string{"n1": mitgcm, "n2": mitgcm, "n3": own})
			if own != "" {
				s.WaitJob(s.Sbatch("alice", "0", "-N1", "--constraint=ib", "--nodelist=n3"), "COMPLETED")
			}
			s.OK(s.Slurmctld().Restart(s.Ctx, syscall.SIGTERM))
			until("the kernel after a restart", map[string]string{"n1": mitgcm, "n2": mitgcm, "n3": own})
			s.Must("root", "scontrol", "reconfigure")
			until("the kernel after a reconfigure", map[string]string{"n1": mitgcm, "n2": mitgcm, "n3": own})
			s.WaitJob(id, "RUNNING")
			s.Must("alice", "scancel", id)
			until("stock again", map[string]string{"n1": own, "n2": own, "n3": own})
			s.Settled(2 * Limit)
			commands := func() int {
				return strings.Count(s.Must("root", "cat", "/var/log/kernel-broker/broker.log"), `action="set features"`)
			}
			told := commands()
			s.Never(3*time.Second, "slurmctld is told what it knows", func() bool { return commands() != told })
			t.Log(told, "commands")
		})
	}
}
