// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"strings"
	"testing"
	"time"
)

// More jobs than may switch at a time wait for their turns, longer than a node's agent may be away: each runs once, and no node is
// drained.
func TestManyWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.BootTime, o.ResumeTimeout = 3*time.Second, 4*time.Minute
		o.Broker = map[string]any{"switch": map[string]any{"at_once": 1, "agent_limit": "10s"}}
	})
	var jobs []string
	for i := range 8 {
		jobs = append(jobs, s.Sbatch("alice", "0", "-N1", "--kernel-profile="+[]string{"mitgcm", "lammps"}[i%2]))
	}
	waited := false
	seen := func() bool {
		for _, id := range jobs[1:] {
			if strings.Contains(s.Job(id)["AdminComment"], "waits for its turn") {
				return true
			}
		}
		return false
	}
	for i, id := range jobs {
		s.Wait(Limit, "job "+id+" to end", func() bool {
			waited = waited || seen()
			for _, node := range s.Options().nodeNames() {
				if reason := s.NodeState(node)["Reason"]; strings.HasPrefix(reason, "kernel-broker:") {
					t.Fatalf("%s is drained: %s", node, reason)
				}
			}
			s.Hurry(id)
			return s.Job(id)["JobState"] == "COMPLETED"
		}, func() string { return s.State(id) + " " + s.Job(id)["AdminComment"] })
		s.RanOn("alice", id, []string{"mitgcm", "lammps"}[i%2], 1)
	}
	if !waited {
		t.Error("no job said that it waits for its turn")
	}
	s.Settled(Limit)
}

// Where Slurm hides others' jobs, kernelctl hides them too.
func TestPrivateData(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.Set = map[string]string{"PrivateData": "jobs"} })
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	for user, shown := range map[string]bool{"alice": true, "bob": false, "root": true, "slurm": true} {
		list := s.Must(user, "kernelctl", "job", "list")
		show := s.Try(user, "kernelctl", "job", "show", id)
		if strings.Contains(list, "alice") != shown || (show.Exit == 0) != shown {
			t.Errorf("%s sees\n%s\nand of job %s: exit %d\n%s%s", user, list, id, show.Exit, show.Stdout, show.Stderr)
		}
		if nodes := s.Must(user, "kernelctl", "node", "list", "-o", "wide"); !shown && strings.Contains(nodes, " "+id+" ") {
			t.Errorf("%s sees the node's job:\n%s", user, nodes)
		}
	}
	s.LetGo("alice", id)
	s.WaitJob(id, "COMPLETED")
	s.Settled(Limit)
}
