// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// recordScript is run by a job's step on each node: it records the running kernel and its arguments.
const recordScript = `#!/bin/bash
id=$(od -An -v -tx1 /sys/kernel/notes | tr -d ' \n' | grep -o '040000001400000003000000474e5500.\{40\}' | cut -c33-72)
echo "ran job=$SLURM_JOB_ID array=$SLURM_ARRAY_JOB_ID task=$SLURM_ARRAY_TASK_ID restart=${SLURM_RESTART_COUNT:-0} \
step=$SLURM_STEP_ID node=$(hostname) release=$(uname -r) build_id=$id boot_id=$(cat /proc/sys/kernel/random/boot_id) \
profile=$KERNEL_BROKER_PROFILE version=$KERNEL_BROKER_VERSION \
told_release=$KERNEL_BROKER_RELEASE told_build_id=$KERNEL_BROKER_BUILD_ID $*" >>"$HOME/record"
`

// jobScript runs a recording step and then stays for its argument: seconds, or "held" until LetGo.
const jobScript = `#!/bin/bash
srun /emulated/record
case ${1-0} in
held) until [ -e "$HOME/go-$SLURM_JOB_ID" ]; do sleep 0.1; done ;;
*) sleep "${1-0}" ;;
esac
`

// Ran is the record of one process of a job: job, restart, step, node, release, build_id, boot_id and the job's
// environment about its kernel.
type Ran map[string]string

// Records returns the records of the user's jobs, of one job if id is not "".
func (s *Trial) Records(user, id string) []Ran {
	s.T.Helper()
	return slices.DeleteFunc(s.RecordsIn(user, "record"), func(r Ran) bool { return id != "" && r["job"] != id })
}

// RecordsIn returns the content of a file of records in the user's home.
func (s *Trial) RecordsIn(user, file string) []Ran {
	s.T.Helper()
	var out []Ran
	for line := range strings.Lines(s.Read(user, file)) {
		r := Ran{}
		for _, field := range strings.Fields(line) {
			if k, v, ok := strings.Cut(field, "="); ok {
				r[k] = v
			}
		}
		out = append(out, r)
	}
	return out
}

// Sbatch submits a job whose step records its kernel on each node, and returns its id. Without a script in the
// arguments, "stay" is its duration afterwards: seconds, or "held" until LetGo.
func (s *Trial) Sbatch(user, stay string, args ...string) string {
	s.T.Helper()
	argv := append([]string{"sbatch", "--parsable", "--output=%j.out"}, args...)
	out := s.Must(user, append(argv, "/emulated/job", stay)...)
	id, _, _ := strings.Cut(out[strings.LastIndex(out, "\n")+1:], ";")
	return id
}

// LetGo ends a job that is held.
func (s *Trial) LetGo(user, id string) {
	s.T.Helper()
	s.OK(write(filepath.Join(s.Home(user), "go-"+id), "", 0o644))
}

// Job is scontrol's view of a job, nil if unknown.
func (s *Trial) Job(id string) map[string]string {
	s.T.Helper()
	return fields(s.Try("root", "scontrol", "show", "job", id).Stdout)
}

// State is a job's state and reason.
func (s *Trial) State(id string) string {
	s.T.Helper()
	j := s.Job(id)
	return j["JobState"] + " " + j["Reason"]
}

// fields reads scontrol's output. A node's reason and a job's comments contain spaces and end their lines.
func fields(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, key := range []string{"AdminComment", "Comment", "SystemComment"} {
			if value, ok := strings.CutPrefix(line, key+"="); ok {
				all[key], line = strings.TrimSpace(value), ""
			}
		}
		if value, ok := strings.CutPrefix(line, "Reason="); ok && all["NodeName"] != "" {
			all["Reason"], line = value, ""
		}
		for _, field := range strings.Fields(line) {
			if k, v, ok := strings.Cut(field, "="); ok && all[k] == "" {
				all[k] = v
			}
		}
	}
	return all
}

// WaitJob waits until the job is in one of the states.
func (s *Trial) WaitJob(id string, states ...string) map[string]string {
	s.T.Helper()
	var job map[string]string
	s.Wait(Limit, fmt.Sprintf("job %s to be %s", id, strings.Join(states, " or ")), func() bool {
		job = s.Job(id)
		if slices.Contains(states, job["JobState"]) {
			return true
		}
		s.Hurry(id)
		return false
	}, func() string {
		return fmt.Sprintf("it is %s %s on %s", job["JobState"], job["Reason"], job["NodeList"])
	})
	return job
}

// Over reports whether a job has ended in any way.
func (s *Trial) Over(id string) bool {
	s.T.Helper()
	switch s.Job(id)["JobState"] {
	case "", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL":
		return true
	}
	return false
}

// Hurry lets a requeued job, which would wait two minutes, start at once.
func (s *Trial) Hurry(id string) {
	s.T.Helper()
	if j := s.Job(id); j["JobState"] == "PENDING" && j["Restarts"] != "0" && j["Reason"] == "BeginTime" {
		s.Try("root", "scontrol", "update", "jobid="+id, "starttime=now")
	}
}

// RanOn checks that the job ran exactly once on each of that many nodes, on the kernel of the profile, with the right
// environment.
func (s *Trial) RanOn(user, id, profile string, nodes int) []Ran {
	s.T.Helper()
	records := s.Records(user, id)
	if len(records) != nodes {
		s.T.Fatalf("job %s: ran %d times, want %d: %v", id, len(records), nodes, records)
	}
	for _, r := range records {
		s.CheckRecord(r, KernelNamed(profile), profile)
	}
	return records
}

// CheckRecord checks one of a job's processes.
func (s *Trial) CheckRecord(r Ran, k Kernel, profile string) {
	s.T.Helper()
	if r["build_id"] != k.BuildID || r["release"] != k.Release {
		s.T.Errorf("job %s on node %s: ran on %s (%s), and %s is %s (%s)",
			r["job"], r["node"], r["release"], r["build_id"], profile, k.Release, k.BuildID)
	}
	if r["profile"] != profile || r["told_release"] != r["release"] || r["told_build_id"] != r["build_id"] {
		s.T.Errorf("job %s on node %s: its environment has %v", r["job"], r["node"], r)
	}
}

// NodeState is scontrol's view of a node, with State and Reason.
func (s *Trial) NodeState(node string) map[string]string {
	s.T.Helper()
	return fields(s.Try("root", "scontrol", "show", "node", node).Stdout)
}

// NodeLine describes a node's state, reason and kernel, for messages.
func (s *Trial) NodeLine(node string) string {
	s.T.Helper()
	n := s.NodeState(node)
	return fmt.Sprintf("%s is %s [%s] and runs %s", node, n["State"], n["Reason"], s.Node(node).Kernel())
}

// IsHome reports whether a node is idle on stock.
func (s *Trial) IsHome(node string) bool {
	s.T.Helper()
	return s.Node(node).Kernel() == KernelNamed(StockName).Release && s.NodeState(node)["State"] == "IDLE"
}

// Settled waits until the nodes, by default all, are idle on stock.
func (s *Trial) Settled(limit time.Duration, nodes ...string) {
	s.T.Helper()
	if len(nodes) == 0 {
		nodes = s.Options().nodeNames()
	}
	for _, name := range nodes {
		s.Wait(limit, name+" to be idle on stock", func() bool { return s.IsHome(name) }, func() string { return s.NodeLine(name) })
	}
}
