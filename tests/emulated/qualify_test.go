// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// qualification is what kernelctl node qualify prints.
type qualification struct {
	Node, Kernel string
	Rounds       []struct {
		Job            int
		Switch, Return map[string]float64
		ReturnedBy     string `json:"returned_by"`
	}
	Phases []struct {
		Way, Phase string
		Count      int
		Median     float64 `json:"median_seconds"`
		P95        float64 `json:"p95_seconds"`
	}
}

// asBefore checks that a qualification left nothing behind.
func (s *Trial) asBefore() {
	s.T.Helper()
	if text := s.Must("root", "scontrol", "--oneliner", "show", "reservation"); strings.Contains(text, "qualify") {
		s.T.Errorf("a reservation is left: %s", text)
	}
	if text := s.Must("root", "squeue", "--noheader", "--all"); strings.TrimSpace(text) != "" {
		s.T.Errorf("a job is left: %s", text)
	}
}

// An idle node and a drained one are measured phase by phase, and are then as before.
func TestQualify(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	for _, c := range []struct{ node, drain string }{{"n1", ""}, {"n2", "bad DIMM, do not use"}} {
		if c.drain != "" {
			s.Must("root", "scontrol", "update", "nodename="+c.node, "state=drain", "reason="+c.drain)
		}
		before := len(s.BootsOf(c.node))
		r := s.Try("root", "kernelctl", "node", "qualify", c.node, "--rounds", "3", "--kernel-profile", "mitgcm", "-o", "json")
		var q qualification
		if err := json.Unmarshal([]byte(r.Stdout), &q); err != nil || r.Exit != 0 {
			t.Fatalf("%s: exit %d, %v\n%s%s", c.node, r.Exit, err, r.Stdout, r.Stderr)
		}
		if len(q.Rounds) != 3 || len(s.BootsOf(c.node))-before != 6 || !strings.Contains(r.Stderr, "round 3 of 3") {
			t.Errorf("%s: %d rounds, booted by %v, said %s", c.node, len(q.Rounds), s.BootsOf(c.node), r.Stderr)
		}
		var seen []string
		for _, p := range q.Phases {
			seen = append(seen, p.Way+" "+p.Phase)
			if p.Count != 3 || p.Median > p.P95 {
				t.Errorf("%s: %+v", c.node, p)
			}
		}
		var want []string
		for _, way := range []string{"switch", "return"} {
			for _, phase := range []string{"load", "stop", "shutdown", "start", "register", "total"} {
				want = append(want, way+" "+phase)
			}
		}
		if !slices.Equal(seen, want) {
			t.Errorf("%s: phases %v", c.node, seen)
		}
		if c.drain == "" {
			s.Settled(Limit, c.node)
		} else {
			s.Wait(Limit, "the drain again", func() bool { return s.homeAndDrained(c.node, c.drain) }, func() string { return s.NodeLine(c.node) })
			s.takesNothing(c.node)
		}
		s.asBefore()
	}
	s.counts(map[string]string{"switch": "6 of 6", "return": "6 of 6"})
}

// What cannot be qualified changes nothing.
func TestQualifyRefuses(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	id := s.Sbatch("bob", "held", "-N1", "--nodelist=n1")
	s.WaitJob(id, "RUNNING")
	s.Must("root", "scontrol", "update", "nodename=n3", "state=down", "reason=smoke")
	for name, c := range map[string]struct {
		user string
		args []string
		want string
	}{
		"a node with a job":   {"root", []string{"n1"}, "has job " + id},
		"a node that is down": {"root", []string{"n3"}, "must be idle"},
		"no such node":        {"root", []string{"n9"}, "n9"},
		"a user":              {"alice", []string{"n2"}, "cannot be reserved"},
		"no round":            {"root", []string{"n2", "--rounds", "0"}, "--rounds"},
	} {
		if r := s.Try(c.user, append([]string{"kernelctl", "node", "qualify"}, c.args...)...); r.Exit == 0 || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: exit %d, %s", name, r.Exit, r.Stderr)
		}
	}
	s.LetGo("bob", id)
	s.WaitJob(id, "COMPLETED")
	s.asBefore()
	for _, node := range s.Nodes() {
		if boots := s.BootsOf(node.Name()); len(boots) != 1 {
			t.Errorf("%s booted by %v", node.Name(), boots)
		}
	}
}

// A job that fails ends the qualification with its reason, and so does an interrupt; the node is free again, or drained
// as before.
func TestQualifyRestores(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	s.Must("root", "scontrol", "update", "nodename=n1", "state=drain", "reason=mine")
	s.Must("root", "kernelctl", "hardware", "rule", "set", "no", "--node", "n1", "--kexec", "never", "--reason", "hangs")
	r := s.Try("root", "kernelctl", "node", "qualify", "n1", "--rounds", "2", "--kernel-profile", "mitgcm")
	if r.Exit == 0 || !strings.Contains(r.Stderr, "round 1 of 2") || !strings.Contains(r.Stderr, "hangs") {
		t.Errorf("exit %d, %s", r.Exit, r.Stderr)
	}
	s.Wait(Limit, "the drain again", func() bool { return s.homeAndDrained("n1", "mine") }, func() string { return s.NodeLine("n1") })
	s.asBefore()
	s.Must("root", "kernelctl", "hardware", "rule", "remove", "no")

	// The administrator's ssh ends.
	s.Must("root", "scontrol", "update", "nodename=n2", "state=drain", "reason=bad DIMM")
	s.Node("n2").SetBootTime(3 * time.Second)
	done := make(chan Result, 1)
	go func() {
		r, _ := s.Exec(s.Ctx, "root", "sh", "-c", `echo $$ >/tmp/qualify.pid; exec kernelctl node qualify n2 --rounds 5 --kernel-profile mitgcm`)
		done <- r
	}()
	s.Wait(time.Minute, "n2 in its switch", func() bool { return s.inSwitch("n2") })
	s.Must("root", "sh", "-c", "kill -HUP $(cat /tmp/qualify.pid)")
	if r := <-done; r.Exit == 0 || !strings.Contains(r.Stderr, "interrupted") {
		t.Errorf("exit %d, %s", r.Exit, r.Stderr)
	}
	s.Wait(Limit, "the drain of n2 again", func() bool { return s.homeAndDrained("n2", "bad DIMM") }, func() string { return s.NodeLine("n2") })
	s.asBefore()
}
