// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// faults is a cluster for fault injection. Its jobs record the requested and the running kernel, in the batch script and
// in each task, so that the records of all users show whether any job ever ran on a wrong kernel.
type faults struct {
	*cluster
	kernels map[string]kernel
	jobs    map[string]string // acknowledged: the profile by the job's id
}

// probeScript records one process of a job: $1 is batch or task, $2 what was
// asked for.
const probeScript = `#!/bin/sh
HOME=$HOME/records exec /emulated/record "$@"
`

// askScript is the batch job: requested profile, and its duration: some seconds, or "held" until letGo.
const askScript = `#!/bin/bash
"$HOME/probe.sh" kind=batch asked="$1"
srun "$HOME/probe.sh" kind=task asked="$1"
if [ "$2" != held ]; then exec sleep "$2"; fi
until [ -e "$HOME/go-$SLURM_JOB_ID" ]; do sleep 0.1; done
`

// startFaults starts a cluster with short limits, so that a site's minutes take seconds here.
func startFaults(t *testing.T, change func(*emulated.Options)) *faults {
	t.Helper()
	c := start(t, func(o *emulated.Options) {
		o.BootTime = 2 * time.Second
		o.ResumeTimeout = 10 * time.Minute
		o.Broker = map[string]any{"switch": map[string]any{"agent_limit": "25s", "reset_grace": "2m", "reboot_timeout": "2m", "stock_timeout": "60s"}}
		o.Client = map[string]any{"broker_wait": "25s", "hold_after": 2}
		o.Agent["broker_grace"] = "10s"
		if change != nil {
			change(o)
		}
	})
	f := &faults{cluster: c, kernels: map[string]kernel{}, jobs: map[string]string{}}
	for _, user := range []string{"alice", "bob"} {
		f.file(user, "probe.sh", probeScript)
		f.file(user, "ask.sh", askScript)
		dir := filepath.Join(f.Home(user), "records")
		f.OK(os.MkdirAll(dir, 0o755))
		f.OK(os.Chmod(dir, 0o777))
	}
	for _, profile := range []string{"stock", "mitgcm"} {
		f.kernels[profile] = f.kernelOf(profile)
	}
	// slurmctld asks fresh nodes to register once more; a switch in that second would look like a crash. That is not
	// tested here.
	f.completed("alice", f.ask("alice", "stock", 0, "-N2"), 2)
	f.settled()
	return f
}

// on runs one fault as a subtest. It first checks for leftovers of the previous one; after a failure the rest is
// skipped.
func (f *faults) on(name string, check func(f *faults)) {
	parent := f.t.(*testing.T)
	if !parent.Run(name, func(t *testing.T) {
		sub := &faults{cluster: &cluster{Trial: f.With(t), t: t, ctx: t.Context()}, kernels: f.kernels, jobs: f.jobs}
		begin := time.Now()
		check(sub)
		sub.sound()
		t.Logf("%s: %.1f s", name, time.Since(begin).Seconds())
	}) {
		parent.Fatalf("%s failed: the cluster's state cannot be trusted any more", name)
	}
}

// ask submits a job of some seconds; profile "stock" means none.
func (f *faults) ask(user, profile string, seconds int, args ...string) string {
	f.t.Helper()
	return f.submit(user, profile, strconv.Itoa(seconds), args)
}

// askHeld submits a job that runs until letGo, so that a loaded machine has enough time for events during its run.
func (f *faults) askHeld(user, profile string, args ...string) string {
	f.t.Helper()
	return f.submit(user, profile, "held", args)
}

func (f *faults) submit(user, profile, stay string, args []string) string {
	f.t.Helper()
	argv := []string{"sbatch", "--parsable", "--output=%j.out"}
	if profile != "stock" {
		argv = append(argv, "--kernel-profile="+profile)
	}
	argv = append(append(argv, args...), "ask.sh", profile, stay)
	id, _, _ := strings.Cut(f.must(user, argv...), ";")
	f.jobs[id] = profile
	return id
}

// probes are the records of one job, or of all jobs when id is "".
func (f *faults) probes(user, id string) []ran {
	f.t.Helper()
	var out []ran
	for _, r := range f.With(f.t).RecordsIn(user, "records/record") {
		if id == "" || r["job"] == id {
			out = append(out, r)
		}
	}
	return out
}

// truthful scans the records of all users for a job on a wrong kernel or with a wrong environment.
func (f *faults) truthful() {
	f.t.Helper()
	for _, user := range []string{"alice", "bob"} {
		for _, r := range f.probes(user, "") {
			k := f.kernels[r["asked"]]
			told := r["profile"]
			if told == "" {
				told = "stock"
			}
			if r["build_id"] != k.buildID || r["release"] != k.release || told != r["asked"] {
				f.t.Errorf("a job ran on a kernel that it did not request: %v; %s is %s (%s)", r, r["asked"], k.release, k.buildID)
			}
		}
	}
}

// sound is the invariant after every fault: nodes are on stock and usable, no job ran on a wrong kernel, and the broker
// knows every acknowledged job.
func (f *faults) sound() {
	f.t.Helper()
	f.settled()
	f.truthful()
	for id, profile := range f.jobs {
		if _, known := f.known(id); profile != "stock" && !known && !f.neverAllocated(id) {
			f.t.Errorf("job %s for %s is not in the broker's list", id, profile)
		}
	}
}

// neverAllocated reports whether the job never had nodes, so that the broker need not know it.
func (f *faults) neverAllocated(id string) bool {
	job := f.job(id)
	return job["StartTime"] == "Unknown" || job["StartTime"] == job["EndTime"] || job["Restarts"] == "0" && job["JobState"] == "PENDING"
}

// completed waits for the job's end and checks that it ran exactly once, on every node and on the requested kernel. It
// starts a requeued job, which would wait two minutes.
func (f *faults) completed(user, id string, nodes int) {
	f.t.Helper()
	f.wait(switchLimit, "job "+id+" to complete", func() bool {
		job := f.job(id)
		if held(job) {
			f.t.Fatalf("job %s is held: %s", id, job["AdminComment"])
		}
		f.hurry(job)
		return job["JobState"] == "COMPLETED"
	})
	batches, tasks := 0, 0
	for _, r := range f.probes(user, id) {
		if r["kind"] == "batch" {
			batches++
		} else {
			tasks++
		}
	}
	if batches != 1 || tasks != nodes {
		f.t.Errorf("job %s: its script ran %d times and its tasks %d, want 1 and %d: %v", id, batches, tasks, nodes, f.probes(user, id))
	}
}

// hurry lets a requeued job start at once.
func (f *faults) hurry(job map[string]string) {
	if job["JobState"] == "PENDING" && job["Restarts"] != "0" && job["Reason"] == "BeginTime" {
		f.try("root", "scontrol", "update", "jobid="+job["JobId"], "starttime=now")
	}
}

// isHeld waits until a job is held with a reason that its user can read.
func (f *faults) isHeld(user, id string, words ...string) {
	f.t.Helper()
	f.wait(switchLimit, "job "+id+" to be held", func() bool {
		job := f.job(id)
		f.hurry(job)
		return held(job)
	})
	comment := ""
	for line := range strings.Lines(f.must(user, "scontrol", "show", "job", id)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "AdminComment="); ok {
			comment = text
		}
	}
	for _, word := range append([]string{"kernel-broker: "}, words...) {
		if !strings.Contains(comment, word) {
			f.t.Errorf("job %s: %q is not shown to its user: %q", id, word, comment)
		}
	}
}

// profile registers a profile of one version.
func (f *faults) profile(name, kernel, argument string) {
	f.t.Helper()
	f.apply(name, fmt.Sprintf("name: %s\napplication: test\ndescription: For a test of failures\ndefault_version: 1\n"+
		"versions:\n  - version: 1\n    kernel: %s\n    arguments: [%s]\n", name, kernel, argument))
	f.kernels[name] = f.kernelOf(name)
}

func (f *faults) cancelled(user, id string) {
	f.t.Helper()
	f.must(user, "scancel", id)
	f.waitJob(id, "CANCELLED")
	f.never(user, id)
}

// freeze stops a node's agent, as a hang would.
func (f *faults) freeze() {
	f.t.Helper()
	f.onNodes("kill -STOP $(cat /run/agent.pid)")
}

// thaw resumes it.
func (f *faults) thaw() {
	f.t.Helper()
	f.onNodes("kill -CONT $(cat /run/agent.pid)")
}

func (f *faults) onNodes(script string) {
	f.t.Helper()
	for _, n := range f.Nodes() {
		if r, err := n.Exec(f.ctx, "/bin/sh", "-c", script); err != nil || r.Exit != 0 {
			f.t.Fatalf("node %s: %s: exit %d %s %v", n.Name(), script, r.Exit, r.Stderr, err)
		}
	}
}

// logSize is where the broker's log ends now.
func (f *faults) logSize() int64 {
	f.t.Helper()
	st, err := os.Stat(f.Broker().Log())
	f.OK(err)
	return st.Size()
}

// logged waits for a pattern in the broker's log after an offset.
func (f *faults) logged(from int64, pattern string) {
	f.t.Helper()
	what := regexp.MustCompile(pattern)
	for end := time.Now().Add(switchLimit); ; time.Sleep(2 * time.Millisecond) {
		text, err := os.ReadFile(f.Broker().Log())
		f.OK(err)
		if what.Match(text[min(from, int64(len(text))):]) {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("%q is not in the broker's log after %v", pattern, switchLimit)
		}
	}
}

// prologs are the PrologSlurmctlds that run.
func (f *faults) prologs() []string {
	f.t.Helper()
	pids, err := f.Processes("/opt/kernel-broker/libexec/prolog-slurmctld")
	f.OK(err)
	return pids
}

func (f *faults) signalProlog(sig syscall.Signal) {
	f.t.Helper()
	pids := f.prologs()
	if len(pids) == 0 {
		f.t.Fatal("no PrologSlurmctld runs")
	}
	f.must("root", append([]string{"kill", "-" + strconv.Itoa(int(sig))}, pids...)...)
}
