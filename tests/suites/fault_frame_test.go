// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// faults is a cluster for fault injection. Its jobs record the requested and the running kernel, in the batch script and
// in each task, so that the records of all users show whether any job ever ran on a wrong kernel.
type faults struct {
	*cluster
	kernels map[string]kernel
	jobs    map[string]string // acknowledged: the profile by the job's id
}

// probeScript records one process of a job: $1 is batch or task, $2 the request. Every job and node has its own file,
// since concurrent appends over a network file system may lose a line.
const probeScript = `#!/bin/bash
id=$(od -An -v -tx1 /sys/kernel/notes | tr -d ' \n' | grep -o '040000001400000003000000474e5500.\{40\}' | cut -c33-72)
echo "kind=$1 asked=$2 job=$SLURM_JOB_ID restart=${SLURM_RESTART_COUNT:-0} node=$(hostname) release=$(uname -r) \
build_id=$id boot_id=$(cat /proc/sys/kernel/random/boot_id) profile=$KERNEL_BROKER_PROFILE \
told_build_id=$KERNEL_BROKER_BUILD_ID" >> "$HOME/records/$SLURM_JOB_ID.$(hostname)"
`

// askScript is the batch job: requested profile, and its duration: some seconds, or "held" until letGo.
const askScript = `#!/bin/bash
"$HOME/probe.sh" batch "$1"
srun "$HOME/probe.sh" task "$1"
if [ "$2" != held ]; then exec sleep "$2"; fi
until [ -e "$HOME/go-$SLURM_JOB_ID" ]; do sleep 0.1; done
`

// startFaults starts a cluster with short limits, so that a site's minutes take seconds here.
func startFaults(t *testing.T, change func(*lab.Options)) *faults {
	t.Helper()
	c := start(t, func(o *lab.Options) {
		o.Broker = map[string]any{"switch": map[string]any{"agent_limit": "25s", "reset_grace": "2m", "reboot_timeout": "2m", "stock_timeout": "60s"}}
		o.Client = map[string]any{"broker_wait": "25s", "hold_after": 2}
		o.Agent = map[string]any{"broker_grace": "10s"}
		o.Slurm.ReturnToService = 1
		if change != nil {
			change(o)
		}
	})
	f := &faults{cluster: c, kernels: map[string]kernel{}, jobs: map[string]string{}}
	f.users("alice", "bob")
	for _, profile := range []string{"stock", "mitgcm"} {
		f.kernels[profile] = f.kernelOf(profile)
	}
	// slurmctld asks fresh nodes to register once more; a switch in that second would look like a crash. That is not
	// tested here.
	f.completed("alice", f.ask("alice", "stock", 0, "-N2"), 2)
	f.settled()
	return f
}

// users gives users the scripts.
func (f *faults) users(names ...string) {
	f.t.Helper()
	for _, user := range names {
		f.file(user, "probe.sh", probeScript)
		f.file(user, "ask.sh", askScript)
		dir := filepath.Join(f.Home(user), "records")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			f.t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			f.t.Fatal(err)
		}
	}
}

// on runs one fault as a subtest. It first checks for leftovers of the previous one; after a failure the rest is
// skipped.
func (f *faults) on(name string, check func(f *faults)) {
	parent := f.t
	if !parent.Run(name, func(t *testing.T) {
		c := *f.cluster
		c.t, c.ctx = t, t.Context()
		sub := &faults{cluster: &c, kernels: f.kernels, jobs: f.jobs}
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
	return f.submit(user, profile, fmt.Sprint(seconds), args)
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
	if id == "" {
		id = "*"
	}
	files, err := filepath.Glob(filepath.Join(f.Home(user), "records", id+".*"))
	if err != nil {
		f.t.Fatal(err)
	}
	var out []ran
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			r := ran{}
			for _, field := range strings.Fields(line) {
				if k, v, ok := strings.Cut(field, "="); ok {
					r[k] = v
				}
			}
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
	known := f.brokerJobs()
	for id, profile := range f.jobs {
		if profile != "stock" && !known[id] && !f.neverAllocated(id) {
			f.t.Errorf("job %s for %s is not in the broker's list", id, profile)
		}
	}
}

// neverAllocated reports whether the job never had nodes, so that the broker need not know it.
func (f *faults) neverAllocated(id string) bool {
	job := f.job(id)
	return job["StartTime"] == "Unknown" || job["StartTime"] == job["EndTime"] || job["Restarts"] == "0" && job["JobState"] == "PENDING"
}

// brokerJobs are the ids of the jobs that the broker remembers.
func (f *faults) brokerJobs() map[string]bool {
	f.t.Helper()
	var list struct {
		Jobs []struct {
			JobID int `json:"job_id"`
		} `json:"jobs"`
	}
	f.kernelctl(&list, "job", "list", "--limit", "1000")
	known := map[string]bool{}
	for _, j := range list.Jobs {
		known[fmt.Sprint(j.JobID)] = true
	}
	return known
}

// brokerJob is the broker's record of a job's newest run.
type brokerJob struct {
	RestartCount int    `json:"restart_count"`
	Phase        string `json:"phase"`
	Reason       string `json:"reason"`
	Timeline     []struct {
		Node, Event, Detail string
	} `json:"timeline"`
}

// seen asks the broker for a job; false if unknown.
func (f *faults) seen(id string) (brokerJob, bool) {
	f.t.Helper()
	var j brokerJob
	r := f.try("alice", "kernelctl", "job", "show", id, "--output", "json")
	if r.Exit != 0 {
		return j, false
	}
	if err := json.Unmarshal([]byte(r.Stdout), &j); err != nil {
		f.t.Fatalf("kernelctl job show %s: %v\n%s", id, err, r.Stdout)
	}
	return j, true
}

// happened waits until the job's timeline has an event; node "" is any node.
func (f *faults) happened(id, node, event string) {
	f.t.Helper()
	f.wait(switchLimit, fmt.Sprintf("event %q of job %s", event, id), func() bool {
		j, _ := f.seen(id)
		for _, e := range j.Timeline {
			if e.Event == event && (node == "" || e.Node == node) {
				return true
			}
		}
		return false
	})
}

// finish waits until a job has completed. It starts a requeued job, which would wait two minutes.
func (f *faults) finish(id string) map[string]string {
	f.t.Helper()
	var job map[string]string
	err := lab.Wait(f.ctx, switchLimit, "job "+id+" to complete", func() (bool, error) {
		job = f.job(id)
		if held(job) {
			return false, fmt.Errorf("it is held: %s", job["AdminComment"])
		}
		f.hurry(job)
		return job["JobState"] == "COMPLETED", nil
	})
	if err != nil {
		f.t.Fatalf("%v; it is %v", err, job)
	}
	return job
}

// hurry lets a requeued job start at once.
func (f *faults) hurry(job map[string]string) {
	if job["JobState"] == "PENDING" && job["Restarts"] != "0" && job["Reason"] == "BeginTime" {
		f.try("root", "scontrol", "update", "jobid="+job["JobId"], "starttime=now")
	}
}

func held(job map[string]string) bool {
	return job["JobState"] == "PENDING" && job["Priority"] == "0"
}

// completed waits for the job's end and checks that it ran exactly once, on every node and on the requested kernel.
func (f *faults) completed(user, id string, nodes int) []ran {
	f.t.Helper()
	f.finish(id)
	return f.once(user, id, nodes)
}

func (f *faults) once(user, id string, nodes int) []ran {
	f.t.Helper()
	var tasks []ran
	batches := 0
	for _, r := range f.probes(user, id) {
		if r["kind"] == "batch" {
			batches++
		} else {
			tasks = append(tasks, r)
		}
	}
	if batches != 1 || len(tasks) != nodes {
		f.t.Errorf("job %s: its script ran %d times and its tasks %d, want 1 and %d: %v", id, batches, len(tasks), nodes, f.probes(user, id))
	}
	return tasks
}

// isHeld waits until a job is held with a reason that its user can read.
func (f *faults) isHeld(user, id string, words ...string) {
	f.t.Helper()
	job := map[string]string{}
	f.wait(switchLimit, "job "+id+" to be held", func() bool {
		job = f.job(id)
		f.hurry(job)
		return held(job)
	})
	// The user reads the comment of slurmctld's administrator, too.
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

// profile registers a profile with one version; more are further lines of it.
func (f *faults) profile(name, kernel string, arguments []string, more ...string) {
	f.t.Helper()
	quoted := make([]string, len(arguments))
	for i, a := range arguments {
		quoted[i] = fmt.Sprintf("%q", a)
	}
	text := fmt.Sprintf("name: %s\napplication: test\ndescription: For a test of failures\ndefault_version: 1\n"+
		"versions:\n  - version: 1\n    kernel: %s\n    arguments: [%s]\n%s\n",
		name, kernel, strings.Join(quoted, ", "), strings.Join(more, "\n"))
	file := filepath.Join(f.CatalogDir(), "profiles", name+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	f.must("root", "kernelctl", "profile", "apply", "/run/lab/catalog", "--kernels", "/run/lab/catalog/kernels", "--profile", name)
	f.kernels[name] = f.kernelOf(name)
}
