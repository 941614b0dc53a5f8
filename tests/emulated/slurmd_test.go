// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"strings"
	"testing"
	"time"
)

// killSlurmd ends a node's slurmd as the out-of-memory killer does.
func (s *Trial) killSlurmd(node string) {
	s.T.Helper()
	r, err := s.Node(node).Exec(s.Ctx, "sh", "-c", "kill -9 $(cat /run/slurmd.pid)")
	s.OK(err)
	if r.Exit != 0 {
		s.T.Fatalf("slurmd of %s not killed: %s%s", node, r.Stdout, r.Stderr)
	}
}

// The agent starts a slurmd again that died: on an idle node, under a plain job and under a job on its own kernel.
func TestSlurmdDies(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.Set = map[string]string{"SlurmdTimeout": "20"} })
	plain := s.Sbatch("bob", "held", "-N1", "--nodelist=n2")
	own := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	for user, id := range map[string]string{"bob": plain, "alice": own} {
		s.Wait(Limit, "the step of job "+id, func() bool { return len(s.Records(user, id)) == 1 }, func() string { return s.State(id) })
	}
	for _, node := range s.Options().nodeNames() {
		s.killSlurmd(node)
	}
	started := func(node string) bool {
		r, err := s.Node(node).Exec(s.Ctx, "sh", "-c", "kill -0 $(cat /run/slurmd.pid)")
		return err == nil && r.Exit == 0
	}
	for _, node := range s.Options().nodeNames() {
		s.Wait(Limit, "slurmd of "+node, func() bool { return started(node) }, func() string { return s.NodeLine(node) })
	}
	s.LetGo("bob", plain)
	s.LetGo("alice", own)
	for _, id := range []string{plain, own} {
		if job := s.WaitJob(id, "COMPLETED"); job["Restarts"] != "0" {
			t.Errorf("job %s was started %s times more", id, job["Restarts"])
		}
	}
	s.Settled(Limit)
}

// An administrator's drain with an end keeps its end over a job's return. Slurm has had ends since 23.02.
func TestDrainWithAnEnd(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	if s.Options().Slurm == "22.05" { // has none yet
		if r := s.Try("root", "scontrol", "update", "nodename=n1", "state=drain", "reason=bad fan", "resumeafter=600"); r.Exit == 0 {
			t.Errorf("Slurm 22.05 takes resumeafter: %s", r.Stdout)
		}
		return
	}
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.WaitJob(id, "RUNNING")
	s.Must("root", "scontrol", "update", "nodename=n1", "state=drain", "reason=bad fan", "resumeafter=600")
	end := s.NodeState("n1")["ResumeAfterTime"]
	if end == "" || end == "None" {
		t.Fatalf("the drain has no end: %s", s.NodeLine("n1"))
	}
	s.LetGo("alice", id)
	s.WaitJob(id, "COMPLETED")
	s.staysDrained("n1", "bad fan")
	after := s.NodeState("n1")["ResumeAfterTime"]
	was, err := time.Parse("2006-01-02T15:04:05", end)
	s.OK(err)
	if is, err := time.Parse("2006-01-02T15:04:05", after); err != nil || is.Sub(was).Abs() > 5*time.Second {
		t.Errorf("the drain ends at %q, and was to end at %q: %s", after, end, s.NodeLine("n1"))
	}
	s.Must("root", "scontrol", "update", "nodename=n1", "state=drain", "reason=bad fan", "resumeafter=1")
	s.Wait(Limit, "the end of the drain", func() bool { return !strings.Contains(s.NodeState("n1")["State"], "DRAIN") }, func() string { return s.NodeLine("n1") })
	s.Settled(Limit)
}
