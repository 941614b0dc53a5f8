// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/patterns"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// TestProfilingFaults injects faults while jobs are profiled. The job is never harmed, incomplete results are marked
// partial, and nothing is left on any node.
func TestProfilingFaults(t *testing.T) {
	p := startProfiled(t, nil)
	p.on("two-jobs-at-once", twoJobs)
	p.on("job-killed", jobKilled)
	p.on("agent-killed", agentDies)
	p.on("little-space-for-results", littleSpace)
	p.on("no-space-for-results", noSpace)
	p.on("node-lost", nodeLost)
}

var onFirst = []string{"-N1", "--nodelist=n1"}

// waiting has a script wait until the test makes a file.
func waiting(name string) string {
	return fmt.Sprintf("touch here.%[1]s; until [ -e go.%[1]s ]; do sleep 0.2; done\n", name)
}

// here waits until a script does.
func (p *profiled) here(name string) {
	p.t.Helper()
	p.wait(profilingLimit, "the job to get to "+name, func() bool {
		_, err := os.Stat(filepath.Join(p.Home("alice"), "here."+name))
		return err == nil
	})
}

// go lets it continue.
func (p *profiled) goOn(name string) {
	p.t.Helper()
	p.file("alice", "go."+name, "")
}

// called is how often a program made a call.
func called(r profiling.Result, program, call string) (count uint64, processes int) {
	if r.Syscalls == nil {
		return 0, 0
	}
	seen := map[uint32]bool{}
	for _, c := range r.Syscalls.Processes {
		if c.Program == program && c.Name == call {
			count += c.Count
			seen[c.PID] = true
		}
	}
	return count, len(seen)
}

// twoJobs share a node and are both profiled: one with a thousand short processes, one with ten thousand files. Each
// result has all of its own job and nothing else. The first one stays until the second is over, since a call that is
// under way when another job's programs leave the kernel is not counted.
func twoJobs(p *profiled) {
	const processes, files = 1000, 10000
	shared := append([]string{"--partition=shared", "--ntasks=1"}, onFirst...)
	first := p.submit("io,syscalls,noise", waiting("one")+fmt.Sprintf("known processes %d\n", processes)+waiting("rest"), shared...)
	second := p.submit("io,syscalls,noise", waiting("two")+
		fmt.Sprintf("mkdir /tmp/many; known files %d /tmp/many; rm -r /tmp/many\n", files), shared...)
	for _, name := range []string{"one", "two"} {
		p.here(name)
	}
	p.goOn("one")
	p.goOn("two")
	b := p.report(p.over(second, "COMPLETED", runComplete)).Result
	p.here("rest")
	p.goOn("rest")
	a := p.report(p.over(first, "COMPLETED", runComplete)).Result
	if count, pids := called(a, "known", "getppid"); count != processes || pids != processes {
		p.t.Errorf("%d calls of %d processes, were %d of as many", count, pids, processes)
	}
	if a.Syscalls.NotListed.Count != 0 {
		p.t.Errorf("%d calls are of no process", a.Syscalls.NotListed.Count)
	}
	many := p.pattern(b.IO, patterns.OneSmallWrite, "/part.*.meta")
	p.t.Logf("%s %s: %d files, %d writes, %d syncs", many.Behaviour, many.Shape, many.Files, many.Write.Calls, many.Syncs)
	if many.Files != files || many.Write.Calls != files || many.Syncs != files {
		p.t.Errorf("of %d files found %+v", files, many)
	}
	if b.IO.Overflow.Write.Calls != 0 || uint64(len(b.IO.Files))+b.IO.FilesLeftOut < files || len(b.IO.Files) > profiling.MostFiles {
		p.t.Errorf("%d files listed, %d left out, overflow %+v", len(b.IO.Files), b.IO.FilesLeftOut, b.IO.Overflow)
	}
	if _, pids := called(b, "known", "getppid"); pids != 0 {
		p.t.Errorf("%d processes of the other job are in this one's result", pids)
	}
	for _, one := range a.IO.Patterns {
		if strings.HasPrefix(one.Shape, "/tmp/many") {
			p.t.Errorf("files of the other job are in this one's result: %s", one.Shape)
		}
	}
}

// jobKilled: the job's activity until the kill is all there is, so the result is complete.
func jobKilled(p *profiled) {
	job := p.submit("io,syscalls,noise", "known calls 1000\n"+waiting("killed"), onFirst...)
	p.here("killed")
	p.must("alice", "scancel", job)
	made := p.report(p.over(job, "CANCELLED", runComplete))
	if count, _ := called(made.Result, "known", "getppid"); count != 1000 {
		p.t.Errorf("%d calls before its end, were 1000", count)
	}
}

// agentDies: the kernel detaches the dead agent's programs, the next agent starts again, and the gap is reported.
func agentDies(p *profiled) {
	n := p.Nodes()[0]
	job := p.submit("io,syscalls,noise", "known calls 1000\n"+waiting("agent")+"known calls 500\n", onFirst...)
	p.here("agent")
	p.looking(job)
	during := p.programs(n)
	if err := n.KillAgent(p.ctx); err != nil {
		p.t.Fatal(err)
	}
	p.wait(profilingLimit, "the next agent to profile", func() bool {
		text, err := os.ReadFile(n.Log("kernel-broker/agent.log"))
		return err == nil && strings.Contains(string(text), `why="the job had started when the collectors were attached`) &&
			p.runOf(job).node("n1").State == nodeLooking && p.programs(n) == during
	})
	p.goOn("agent")
	r := p.over(job, "COMPLETED", runPartial)
	if !strings.Contains(r.Reason, "the job had started when the collectors were attached") {
		p.t.Errorf("reason %q", r.Reason)
	}
	made := p.report(r)
	// The first thousand are there if the agent had written a checkpoint.
	if count, _ := called(made.Result, "known", "getppid"); count != 500 && count != 1500 {
		p.t.Errorf("%d calls, want the 500 that were seen to the end", count)
	}
	if len(made.Decision.Caveats) == 0 {
		p.t.Errorf("the report does not mention it: %+v", made.Decision)
	}
}

// small puts results of a node on a small disk of their own.
func (p *profiled) small(n lab.Node, size string) (undo func()) {
	p.t.Helper()
	const dir = "/var/lib/kernel-broker/runs"
	shell := func(script string) {
		p.t.Helper()
		if r, err := n.Shell(p.ctx, script); err != nil || r.Exit != 0 {
			p.t.Fatalf("node %s: %s: exit %d %s %v", n.Name(), script, r.Exit, r.Stderr, err)
		}
	}
	shell("mkdir -p " + dir + " && mount -t tmpfs -o size=" + size + " small " + dir)
	return func() { shell("umount " + dir) }
}

// littleSpace is enough for the sums, not for the lists.
func littleSpace(p *profiled) {
	n := p.Nodes()[0]
	undo := p.small(n, "128k")
	job := p.submit("io,syscalls", "mkdir /tmp/some; known files 1000 /tmp/some; rm -r /tmp/some\n", onFirst...)
	r := p.over(job, "COMPLETED", runPartial)
	undo()
	if !strings.Contains(r.Reason, "no space for the whole result") {
		p.t.Errorf("reason %q", r.Reason)
	}
	made := p.report(r)
	if io := made.Result.IO; len(io.Files) != 0 || io.FilesLeftOut < 1000 || p.pattern(io, patterns.OneSmallWrite, "/part.*.meta").Files != 1000 {
		p.t.Errorf("%d files listed, %d left out", len(io.Files), io.FilesLeftOut)
	}
	if count := made.Result.Syscalls.Named("fsync").Count; count != 1000 {
		p.t.Errorf("%d syncs, were 1000", count)
	}
}

// noSpace at all: the other node's result is there.
func noSpace(p *profiled) {
	n := p.Nodes()[0]
	undo := p.small(n, "4k")
	job := p.submit("io,syscalls", "srun --ntasks-per-node=1 known calls 1000\n", "-N2")
	r := p.over(job, "COMPLETED", runPartial)
	undo()
	if bad := r.node("n1"); bad.State == nodeDelivered || !strings.Contains(bad.Reason, "no space left") {
		p.t.Errorf("the node without space: %+v", bad)
	}
	if good := r.node("n2"); good.State != nodeDelivered || good.Partial != "" {
		p.t.Errorf("the other node: %+v", good)
	}
	if count, _ := called(p.report(r).Result, "known", "getppid"); count != 1000 {
		p.t.Errorf("%d calls on the other node, were 1000", count)
	}
}

// nodeLost: the other nodes' results are there, and a node that returns forgets the finished run.
func nodeLost(p *profiled) {
	n := p.Nodes()[1]
	job := p.submit("io,syscalls,noise", "srun --ntasks-per-node=1 known calls 1000\n"+waiting("lost"), "-N2", "--no-requeue")
	p.here("lost")
	p.looking(job)
	if err := n.PowerOff(p.ctx); err != nil {
		p.t.Fatal(err)
	}
	p.must("root", "scontrol", "update", "nodename=n2", "state=down", "reason=lost")
	r := p.over(job, "NODE_FAIL", runPartial)
	if lost := r.node("n2"); lost.State != nodeGone || !strings.Contains(r.Reason, "n2: lost: delivered nothing") {
		p.t.Errorf("the lost node: %+v; the run: %q", lost, r.Reason)
	}
	if good := r.node("n1"); good.State != nodeDelivered || good.Partial != "" {
		p.t.Errorf("the other node: %+v", good)
	}
	made := p.report(r)
	if count, _ := called(made.Result, "known", "getppid"); count != 1000 || !strings.Contains(strings.Join(made.Decision.Caveats, "\n"), "node n2: lost") {
		p.t.Errorf("%d calls on the other node, were 1000; caveats %q", count, made.Decision.Caveats)
	}
	if err := n.PowerOn(p.ctx); err != nil {
		p.t.Fatal(err)
	}
	p.wait(profilingLimit, "the node to be back", func() bool {
		p.try("root", "scontrol", "update", "nodename=n2", "state=resume")
		// Not "idle*", which is a node that has not registered yet.
		return p.must("root", "sinfo", "--noheader", "--Node", "--partition=main", "--nodes=n2", "--format=%T") == "idle"
	})
	p.settled()
}
