// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/runreport"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// profiled is a cluster with profiled jobs on the distribution's kernel: slim kernels lack the collectors' requirements.
type profiled struct {
	*cluster
	clean map[string]string // attached and mounted on a node without a run
}

// profilingLimit is generous: an emulated node takes minutes for a second's work of a machine, more so on a loaded host.
const profilingLimit = 15 * time.Minute

// deliverLimit is how long a lost node is waited for.
const deliverLimit = 90 * time.Second

func startProfiled(t *testing.T, change func(*lab.Options)) *profiled {
	t.Helper()
	known := filepath.Join(t.TempDir(), "known")
	said, err := exec.Command("gcc", "-O2", "-static", "-o", known,
		"../../kernel-broker/agent/collect/testdata/known.c").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v: %s", err, said)
	}
	p := &profiled{clean: map[string]string{}, cluster: start(t, func(o *lab.Options) {
		o.Kernel, o.Memory = "stock", 1024
		o.ReadyTimeout = profilingLimit
		o.Slurm.Cgroup = true
		o.Slurm.Set["MessageTimeout"] = "100"
		o.Files = map[string]string{"/usr/local/bin/known": known}
		o.Broker = map[string]any{"runs": map[string]any{"standby": "9m", "deliver_limit": deliverLimit.String()}}
		o.Client = map[string]any{"profiling_wait": "570s"}
		// Every call is counted here, whatever that costs.
		o.Agent = map[string]any{"profiling": map[string]any{"overhead_percent": 0}}
		if change != nil {
			change(o)
		}
	})}
	for _, n := range p.Nodes() {
		p.clean[n.Name()] = p.attached(n)
	}
	return p
}

// on runs one case as a subtest. After a failure the rest is skipped.
func (p *profiled) on(name string, check func(p *profiled)) {
	p.t.Helper()
	parent := p.t
	if !parent.Run(name, func(t *testing.T) {
		c := *p.cluster
		c.t, c.ctx = t, t.Context()
		sub := &profiled{cluster: &c, clean: p.clean}
		begin := time.Now()
		check(sub)
		sub.nothingStays()
		t.Logf("%s: %.0f s", name, time.Since(begin).Seconds())
	}) {
		parent.Fatalf("%s failed: the cluster's state cannot be trusted any more", name)
	}
}

// attachedScript asks the kernel, not the agent, what is attached: programs are among its symbols, traced functions in
// ftrace's list, programs and links among the open files of processes. Slim kernels have none of these lists.
const attachedScript = `
echo programs: $(grep -c '\[bpf\]' /proc/kallsyms)
echo traced: $(cat /sys/kernel/debug/tracing/enabled_functions 2>/dev/null | wc -l)
echo held: $(grep -lsE '^(prog_id|map_id|link_id):' /proc/[0-9]*/fdinfo/* | wc -l)
echo timed: $(cat /proc/sys/kernel/bpf_stats_enabled 2>/dev/null)
awk '$3 != "tracefs" { print $1, $2, $3 }' /proc/mounts
find /run/kernel-broker/jobs /var/lib/kernel-broker/runs -mindepth 1 2>/dev/null
find /sys/fs/cgroup -type d -name 'job_*' 2>/dev/null
exit 0
`

func (p *profiled) attached(n lab.Node) string {
	p.t.Helper()
	// Listing all symbols of a kernel takes an emulated node a while.
	ctx, cancel := context.WithTimeout(p.ctx, profilingLimit)
	defer cancel()
	r, err := n.Shell(ctx, attachedScript)
	if err != nil || r.Exit != 0 {
		p.t.Fatalf("node %s: %s %v", n.Name(), r.Stderr, err)
	}
	return r.Stdout
}

// programs is the number of BPF programs in the node's kernel.
func (p *profiled) programs(n lab.Node) int {
	p.t.Helper()
	count := -1
	if _, err := fmt.Sscanf(p.attached(n), "programs: %d", &count); err != nil {
		p.t.Fatalf("node %s: %v", n.Name(), err)
	}
	return count
}

// nothingStays waits until every node is as it was before the first run: the
// kernel frees programs, and Slurm folders, a little after their last user.
func (p *profiled) nothingStays() {
	p.t.Helper()
	for _, n := range p.Nodes() {
		now := ""
		err := lab.Wait(p.ctx, profilingLimit, "node "+n.Name()+" to be as it was", func() (bool, error) {
			now = p.attached(n)
			return now == p.clean[n.Name()], nil
		})
		if err != nil {
			p.t.Fatalf("%v; before:\n%s\nnow:\n%s", err, p.clean[n.Name()], now)
		}
	}
}

// submit has alice submit a script.
func (p *profiled) submit(collectors, script string, args ...string) string {
	p.t.Helper()
	name := "profiled.sh"
	p.file("alice", name, "#!/bin/bash\nset -e\n"+script)
	argv := []string{"sbatch", "--parsable", "--output=%j.out", "--kernel-profiling=" + collectors}
	id, _, _ := strings.Cut(p.must("alice", append(append(argv, args...), name)...), ";")
	return id
}

// runRecord is kernelctl's view of a run.
type runRecord struct {
	ID         uint64    `json:"id"`
	State      string    `json:"state"`
	Reason     string    `json:"reason"`
	JobID      uint32    `json:"job_id"`
	Collectors []string  `json:"collectors"`
	Profile    string    `json:"kernel_profile"`
	Nodes      []runNode `json:"nodes"`
}

type runNode struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Partial string `json:"partial"`
	Files   []struct {
		Name string `json:"name"`
		Size uint64 `json:"size"`
	} `json:"files"`
}

// States of a run and of a node's part in it.
const (
	runComplete   = "complete"
	runPartial    = "partial"
	runFailed     = "failed"
	nodeLooking   = "looking"
	nodeDelivered = "delivered"
	nodeGone      = "lost"
)

func (r runRecord) over() bool {
	return r.State == runComplete || r.State == runPartial || r.State == runFailed
}

func (r runRecord) node(name string) runNode {
	for _, n := range r.Nodes {
		if n.Name == name {
			return n
		}
	}
	return runNode{}
}

// runOf the job; the zero value if there is none yet.
func (p *profiled) runOf(job string) runRecord {
	p.t.Helper()
	var list struct {
		Runs []runRecord `json:"runs"`
	}
	p.kernelctl(&list, "run", "list")
	for _, r := range list.Runs {
		if fmt.Sprint(r.JobID) == job {
			return r
		}
	}
	return runRecord{}
}

// looking waits until every node of the job's run is profiling.
func (p *profiled) looking(job string) runRecord {
	p.t.Helper()
	var r runRecord
	p.wait(profilingLimit, "the nodes of job "+job+" to look", func() bool {
		if r = p.runOf(job); r.over() {
			p.t.Fatalf("run %d is over: %+v", r.ID, r)
		}
		return len(r.Nodes) > 0 && !slices.ContainsFunc(r.Nodes, func(n runNode) bool { return n.State != nodeLooking })
	})
	return r
}

// over waits for the job's end in a state of Slurm's, and for its run's.
func (p *profiled) over(job, slurm, state string) runRecord {
	p.t.Helper()
	p.jobEnds(job, slurm)
	var r runRecord
	p.wait(profilingLimit, "the run of job "+job+" to be over", func() bool {
		r = p.runOf(job)
		return r.over()
	})
	p.kernelctl(&r, "run", "show", fmt.Sprint(r.ID)) // files are shown of one run alone
	if r.State != state {
		p.t.Fatalf("run %d of job %s is %s, not %s: %+v", r.ID, job, r.State, state, r)
	}
	return r
}

func (p *profiled) jobEnds(job, state string) {
	p.t.Helper()
	ended := []string{"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}
	p.wait(profilingLimit, "job "+job+" to end", func() bool { return slices.Contains(ended, p.job(job)["JobState"]) })
	if now := p.job(job); now["JobState"] != state {
		p.t.Fatalf("job %s ended as %s, want %s: %v", job, now["JobState"], state, now)
	}
}

// report of a run, as a program reads it.
func (p *profiled) report(r runRecord) runreport.Report {
	p.t.Helper()
	var made runreport.Report
	p.kernelctl(&made, "run", "report", fmt.Sprint(r.ID))
	return made
}

// output of a job: one JSON object on each line.
func output[T any](p *profiled, job string) []T {
	p.t.Helper()
	var all []T
	for line := range strings.Lines(p.must("alice", "cat", job+".out")) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			p.t.Fatalf("job %s printed %q: %v", job, line, err)
		}
		all = append(all, one)
	}
	return all
}

// pattern of that behaviour with files of this name.
func (p *profiled) pattern(io *profiling.IO, behaviour, ending string) profiling.Pattern {
	p.t.Helper()
	for _, one := range io.Patterns {
		if one.Behaviour == behaviour && strings.HasSuffix(one.Shape, ending) {
			return one
		}
	}
	p.t.Fatalf("no pattern %q of files %q in the report", behaviour, ending)
	return profiling.Pattern{}
}
