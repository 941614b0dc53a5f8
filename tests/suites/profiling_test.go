// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/compare"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/patterns"
)

// TestProfiling profiles real jobs with real collectors, from sbatch's option to the report.
func TestProfiling(t *testing.T) {
	p := startProfiled(t, nil)
	p.on("replay", replayed)
	p.on("call-graph", callGraph)
	p.on("a-kernel-of-its-own", ownKernel)
	p.on("a-slim-kernel", slimKernel)
	p.on("a-slim-kernel-with-collectors", slimWithCollectors)
}

// oceanScript replays the ocean model's input and output on each node. The program reports what it did and removes its
// files.
const oceanScript = `srun --ntasks-per-node=1 bash -c 'd=/tmp/ocean.$SLURM_JOB_ID; mkdir $d; mitgcm-io --dir $d --json; e=$?; rm -r $d; exit $e'
`

// oceanSaid is the report of mitgcm-io.
type oceanSaid struct {
	OK       bool
	Patterns map[string]did
	Total    did
}

type did struct{ Files, Reads, Writes, Seeks, Bytes uint64 }

func replayed(p *profiled) {
	job := p.submit("io,syscalls,noise", oceanScript, "-N2")
	p.looking(job)
	pictures := p.watched(job)
	r := p.over(job, "COMPLETED", runComplete)
	for _, n := range r.Nodes {
		if n.State != nodeDelivered || n.Partial != "" || len(n.Files) != 1 {
			p.t.Errorf("node %+v", n)
		}
	}
	made := p.report(r)
	if len(made.Result.Refused) > 0 || len(made.Result.Partial) > 0 || len(made.Result.Nodes) != 2 {
		p.t.Errorf("refused %+v, partial %+v, nodes %+v", made.Result.Refused, made.Result.Partial, made.Result.Nodes)
	}
	said := output[oceanSaid](p, job)
	if len(said) != 2 {
		p.t.Fatalf("%d nodes reported", len(said))
	}
	p.exact(made.Result, said)
	p.noisy(made.Result)
	if made.Decision.KernelShare == nil || len(made.Decision.Steps) == 0 {
		p.t.Errorf("decision %+v", made.Decision)
	}
	p.shown(r)
	if seen := <-pictures; seen.err != nil || seen.nodes["n1"] == 0 || seen.nodes["n2"] == 0 {
		p.t.Errorf("figures while the job ran: %v, %v", seen.nodes, seen.err)
	}
}

// noisy: each CPU of the job was wanted, and not all of that time was lost.
func (p *profiled) noisy(found profiling.Result) {
	p.t.Helper()
	if len(found.Noise.CPUs) < len(found.Nodes) {
		p.t.Errorf("noise of %d CPUs on %d nodes", len(found.Noise.CPUs), len(found.Nodes))
	}
	for _, c := range found.Noise.CPUs {
		if c.WantedNS == 0 || c.LostNS >= c.WantedNS {
			p.t.Errorf("node %s, CPU %d: lost %d ns of %d", c.Node, c.CPU, c.LostNS, c.WantedNS)
		}
	}
}

// watch is the output of kernelctl run watch: the number of updates of each node.
type watch struct {
	nodes map[string]int
	err   error
}

// watched has alice watch a job until it ends.
func (p *profiled) watched(job string) chan watch {
	seen := make(chan watch, 1)
	go func() {
		w := watch{nodes: map[string]int{}}
		ctx, cancel := context.WithTimeout(p.ctx, profilingLimit)
		defer cancel()
		out, err := p.Exec(ctx, "alice", "kernelctl", "run", "watch", job, "--output", "json")
		w.err = err
		for line := range strings.Lines(out.Stdout) {
			var live profiling.Live
			if err := json.Unmarshal([]byte(line), &live); err != nil {
				w.err = err
				break
			}
			for _, n := range live.Result.Nodes {
				w.nodes[n.Name]++
			}
		}
		if w.err == nil && out.Exit != 0 {
			w.err = fmt.Errorf("exit %d: %s", out.Exit, out.Stderr)
		}
		seen <- w
	}()
	return seen
}

// exact compares the result with the programs' own reports, call for call. Sizes are those of the model's files
// (tests/workloads/mitgcm/README.md).
func (p *profiled) exact(found profiling.Result, said []oceanSaid) {
	p.t.Helper()
	sum := map[string]did{}
	var total did
	for _, s := range said {
		if !s.OK {
			p.t.Errorf("a program failed: %+v", s)
		}
		for name, d := range s.Patterns {
			sum[name] = sum[name].plus(d)
		}
		total = total.plus(s.Total)
	}
	for name, want := range map[string]struct {
		behaviour, ending string
		least, most       uint64
	}{
		"bin":  {patterns.BlockReads, "/input_*.bin", 0, 4096},
		"meta": {patterns.OneSmallWrite, ".meta", 183, 212},
		"data": {patterns.SmallAppends, ".data", 180, 360},
		"log":  {patterns.SmallAppends, "/results.log", 78, 78},
	} {
		d, got := sum[name], p.pattern(found.IO, want.behaviour, want.ending)
		one := got.Write
		if d.Writes == 0 {
			one = got.Read
		}
		p.t.Logf("%s: %s | %s | %d files, %d reads, %d writes, %d bytes of %d to %d each, %d seeks (%d idle)", name, got.Behaviour, got.Shape,
			got.Files, got.Read.Calls, got.Write.Calls, got.Bytes, one.Least, one.Most, got.Seeks, got.IdleSeeks)
		if (did{got.Files, got.Read.Calls, got.Write.Calls, got.Seeks, got.Bytes}) != d {
			p.t.Errorf("%s: found %+v, the programs report %+v", name, got, d)
		}
		if one.Most != want.most || want.least != 0 && one.Least != want.least || one.Sequential != one.Calls {
			p.t.Errorf("%s: calls of %d to %d bytes, %d of %d in order; want %d to %d, all in order",
				name, one.Least, one.Most, one.Sequential, one.Calls, want.least, want.most)
		}
		if got.IdleSeeks != d.Seeks {
			p.t.Errorf("%s: %d idle seeks of %d", name, got.IdleSeeks, d.Seeks)
		}
	}
	if found.Syscalls == nil {
		return
	}
	calls := map[string]uint64{}
	for _, c := range found.Syscalls.Processes {
		if c.Program == "mitgcm-io" {
			calls[c.Name] += c.Count
		}
	}
	// And one write for each report.
	if calls["write"] != total.Writes+uint64(len(said)) || calls["lseek"] != total.Seeks {
		p.t.Errorf("system calls: %d writes and %d seeks, the programs report %+v", calls["write"], calls["lseek"], total)
	}
}

func (d did) plus(o did) did {
	return did{d.Files + o.Files, d.Reads + o.Reads, d.Writes + o.Writes, d.Seeks + o.Seeks, d.Bytes + o.Bytes}
}

// shown checks what the job's user sees, and that others do not.
func (p *profiled) shown(r runRecord) {
	p.t.Helper()
	id := fmt.Sprint(r.ID)
	for _, c := range []struct {
		words []string
		args  []string
	}{
		{[]string{id, "complete", "alice", "2/2"}, []string{"run", "list"}},
		{[]string{"Requested by:", "alice", "n1", "n2", "delivered"}, []string{"run", "show", id}},
		{[]string{"/*.meta", "one small write", "/*.data", "small writes in order", "reads in order", "What profiling cost"}, []string{"run", "report", id}},
		{[]string{"run.html written"}, []string{"run", "report", id, "--html", "run.html"}},
	} {
		out := p.try("alice", append([]string{"kernelctl"}, c.args...)...)
		for _, word := range c.words {
			if out.Exit != 0 || !strings.Contains(out.Stdout+out.Stderr, word) {
				p.t.Errorf("kernelctl %v: exit %d, %q is not in\n%s%s", c.args, out.Exit, word, out.Stdout, out.Stderr)
			}
		}
	}
	if page, err := os.ReadFile(filepath.Join(p.Home("alice"), "run.html")); err != nil || !strings.Contains(string(page), "/*.data") {
		p.t.Errorf("the page: %v, %d bytes", err, len(page))
	}
	p.refused("bob", []string{"for user alice"}, "kernelctl", "run", "report", id)
}

// callGraph checks where in the kernel the time goes, and compares with a second run.
func callGraph(p *profiled) {
	job := p.submit("io,callgraph", oceanScript, "-N1")
	r := p.over(job, "COMPLETED", runComplete)
	made := p.report(r)
	p.exact(made.Result, output[oceanSaid](p, job))
	id := fmt.Sprint(r.ID)
	p.must("alice", "kernelctl", "run", "report", id, "--folded", "stacks", "--dot", "graph.dot", "--pprof", "graph.pb.gz")
	for name, word := range map[string]string{"stacks": "vfs_write", "graph.dot": "vfs_write", "graph.pb.gz": "\x1f\x8b"} {
		text, err := os.ReadFile(filepath.Join(p.Home("alice"), name))
		if err != nil || !strings.Contains(string(text), word) {
			p.t.Errorf("%s: no %q in %d bytes (%v)", name, word, len(text), err)
		}
	}
	var c compare.Comparison
	p.kernelctl(&c, "run", "diff", "1", id)
	if len(c.Rows) == 0 || !slices.ContainsFunc(c.Rows, func(row compare.Row) bool { return row.A != nil && row.B != nil }) {
		p.t.Errorf("runs 1 and %s beside each other: %+v", id, c)
	}
	if slices.ContainsFunc(c.Rows, func(row compare.Row) bool { return row.Standing != compare.Untested }) {
		p.t.Errorf("a comparison of one run each claims significance: %+v", c)
	}
}

// ownKernel: a job on its profile's kernel, here the distribution's under another name, is profiled there at an
// administrator's request.
func ownKernel(p *profiled) {
	f := &faults{cluster: p.cluster, kernels: map[string]kernel{}, jobs: map[string]string{}}
	f.profile("debian", "stock", []string{"quiet"})
	p.must("root", "kernelctl", "run", "request", "--profile", "debian", "--collectors", "io,syscalls")
	p.file("alice", "ocean.sh", "#!/bin/bash\n"+oceanScript)
	job := p.must("alice", "sbatch", "--parsable", "--output=%j.out", "--kernel-profile=debian", "-N1", "--nodelist=n1", "ocean.sh")
	r := p.over(job, "COMPLETED", runComplete)
	if r.Profile != "debian" || r.node("n1").State != nodeDelivered {
		p.t.Errorf("run %+v", r)
	}
	p.exact(p.report(r).Result, output[oceanSaid](p, job))
	p.settled()
}

// slimKernel cannot run the programs: sbatch refuses. If an administrator asks for a run, each collector reports that before
// the job starts, and the job runs.
func slimKernel(p *profiled) {
	const words = "the kernel has no type information"
	p.file("alice", "slim.sh", fmt.Sprintf("#!/bin/bash\ngrep -c '%s' /var/log/kernel-broker/agent.log\nknown calls 1000 >/dev/null\nuname -r\n", words))
	submit := func(more ...string) []string {
		return append(append([]string{"sbatch", "--parsable", "--output=%j.out", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm"}, more...), "slim.sh")
	}
	p.refused("alice", []string{"has no type information (BTF)"}, submit("--kernel-profiling=io")...)
	p.must("root", "kernelctl", "run", "request", "--profile", "mitgcm", "--collectors", "io,syscalls")
	job := p.must("alice", submit()...)
	r := p.over(job, "COMPLETED", runPartial)
	for _, said := range []string{"io, syscalls: " + words, "fragment profiling (docs/ops/profiling.md)"} {
		if !strings.Contains(r.Reason, said) {
			p.t.Errorf("the reason does not contain %q: %q", said, r.Reason)
		}
	}
	lines := strings.Fields(p.must("alice", "cat", job+".out"))
	if k := p.kernelOf("mitgcm"); len(lines) != 2 || lines[0] == "0" || lines[1] != k.release {
		p.t.Errorf("the job found %q: number of reports, and its kernel", lines)
	}
	if made := p.report(r); len(made.Result.Refused) != 2 || made.Result.IO != nil || len(made.Decision.Caveats) < 2 {
		p.t.Errorf("report %+v, %+v", made.Result, made.Decision)
	}
	p.settled()
}

// slimWithCollectors: with the fragment profiling a slim kernel has everything that the collectors need, and they find
// the same as on the distribution's kernel. It supports modules and loads none.
func slimWithCollectors(p *profiled) {
	const name = "mitgcm-profiling"
	p.register(name)
	job := p.submit("io,syscalls,callgraph,noise", "uname -r >$SLURM_JOB_ID.kernel\n"+oceanScript+
		"until [ -e $SLURM_JOB_ID.go ]; do sleep 1; done\n", "-N2", "--kernel-profile="+name)
	p.looking(job)
	out, err := p.Node(1).Shell(p.ctx, "head -c 4096 /dev/zero >/tmp/any.ko; busybox insmod /tmp/any.ko")
	if err != nil || out.Exit == 0 || !strings.Contains(out.Stderr, "Key was rejected by service") {
		p.t.Errorf("a module was not refused for want of a key: exit %d, %s%s %v", out.Exit, out.Stdout, out.Stderr, err)
	}
	p.file("alice", job+".go", "")
	r := p.over(job, "COMPLETED", runComplete)
	if ran := p.must("alice", "cat", job+".kernel"); ran != p.kernelOf(name).release {
		p.t.Errorf("the job ran on %s", ran)
	}
	found := p.report(r).Result
	if len(found.Refused) > 0 || len(found.Partial) > 0 || len(found.Nodes) != 2 {
		p.t.Fatalf("refused %+v, partial %+v, nodes %+v", found.Refused, found.Partial, found.Nodes)
	}
	p.exact(found, output[oceanSaid](p, job))
	p.noisy(found)
	if !slices.ContainsFunc(found.CallGraph.Stacks, func(s profiling.Stack) bool { return slices.Contains(s.Frames, "vfs_write") }) {
		p.t.Errorf("no stack of %d leads through vfs_write", len(found.CallGraph.Stacks))
	}
	p.settled()
}

// register makes a profile of a kernel that only the long suites build.
func (p *profiled) register(name string) {
	p.t.Helper()
	at := p.kernelFolder(name)
	p.must("root", "kernelctl", "kernel", "register", "--no-boot-test", "--profile", name,
		"--kernel", at+"/bzImage", "--manifest", at+"/kernel.json")
}
