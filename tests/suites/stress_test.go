// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// stressJobs is the number of jobs of each run; KB_STRESS_JOBS overrides it.
func stressJobs(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KB_STRESS_JOBS")
	if text == "" {
		return 15
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("KB_STRESS_JOBS=%q is no number of jobs", text)
	}
	return n
}

func TestStressReturnToService0(t *testing.T) { stress(t, 0) }
func TestStressReturnToService1(t *testing.T) { stress(t, 1) }

// stressJob is one submission: a job or an array of jobs.
type stressJob struct {
	id, user, profile string
	nodes, tasks      int
	cancel            string // the state in which it is cancelled; "" never
	asked             bool   // the cancel was
}

// stress mixes jobs of two users, with and without profiles, with arrays and cancels. A fixed seed determines the
// choices.
func stress(t *testing.T, returnToService int) {
	f := startFaults(t, func(o *lab.Options) {
		o.Slurm.ReturnToService = returnToService
		// Nodes are called planned until the next backfill.
		o.Slurm.SchedulerParameters = []string{"bf_interval=5"}
	})
	f.profile("quiet", "mitgcm", []string{"quiet"}, "boot_timeout: 120s")
	before := f.kexecs()
	begin := time.Now()
	jobs := f.submitMix(stressJobs(t), rand.New(rand.NewPCG(2026, uint64(returnToService))))
	t.Logf("%d submissions in %.1f s", len(jobs), time.Since(begin).Seconds())
	restarts := f.drainQueue(jobs)
	f.settled()
	took := time.Since(begin)
	f.truthful()
	f.plainLines()
	ran := 0
	for _, j := range jobs {
		ran += f.stressed(j)
	}
	least, plain := boots(jobs)
	t.Logf("ReturnToService=%d: %d jobs ran, %d requeues, %.0f s; %d kexecs, %d at the very least, %d with one switch and return for each job",
		returnToService, ran, restarts, took.Seconds(), f.kexecs()-before, least, plain)
}

var commandLine = regexp.MustCompile(`(?m)\] Command line: (.*)$`)

// plainLines checks that a node's kernel got the node's arguments once, however many kernels ran before it. Each has one
// built in.
func (f *faults) plainLines() {
	f.t.Helper()
	for _, n := range f.Nodes() {
		console, err := os.ReadFile(n.Console())
		if err != nil {
			f.t.Fatal(err)
		}
		boots := commandLine.FindAllSubmatch(console, -1)
		last := string(boots[len(boots)-1][1])
		if both, nodes := strings.Count(last, "no_timer_check"), strings.Count(last, "kb.node="); both != 2 || nodes != 1 {
			f.t.Errorf("%s, after %d boots, runs with %s", n.Name(), len(boots), last)
		}
	}
}

// submitMix submits the jobs of one run.
func (f *faults) submitMix(n int, chance *rand.Rand) []*stressJob {
	f.t.Helper()
	var jobs []*stressJob
	for left := n; left > 0; {
		j := &stressJob{
			user:    []string{"alice", "bob"}[chance.IntN(2)],
			profile: []string{"stock", "stock", "stock", "mitgcm", "mitgcm", "quiet"}[chance.IntN(6)],
			nodes:   1 + chance.IntN(2), tasks: 1,
		}
		args := []string{fmt.Sprintf("-N%d", j.nodes)}
		if chance.IntN(8) == 0 && left >= 3 {
			j.tasks = 3
			args = append(args, "--array=1-3")
		}
		if chance.IntN(8) == 0 {
			j.cancel = []string{"PENDING", "CONFIGURING", "RUNNING"}[chance.IntN(3)]
		}
		j.id = f.ask(j.user, j.profile, chance.IntN(2), args...)
		jobs = append(jobs, j)
		left -= j.tasks
	}
	return jobs
}

// over are the states in which a job stays.
var over = []string{"COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL", "DEADLINE"}

// drainQueue waits until every job has ended and cancels those that are due in their current state. It returns the
// number of repeated runs.
func (f *faults) drainQueue(jobs []*stressJob) int {
	f.t.Helper()
	limit := time.Duration(len(jobs))*20*time.Second + settleLimit
	repeated := 0
	f.wait(limit, "the end of all jobs", func() bool {
		left := 0
		repeated = 0
		all, ok := f.allJobs()
		if !ok {
			return false
		}
		for _, job := range all {
			n, _ := strconv.Atoi(job["Restarts"])
			repeated += n
			if slices.Contains(over, job["JobState"]) {
				continue
			}
			left++
			if held(job) {
				f.t.Fatalf("job %s is held: %v", job["JobId"], job)
			}
			f.hurry(job)
			f.cancelIn(jobs, job)
		}
		return left == 0
	})
	return repeated
}

func (f *faults) cancelIn(jobs []*stressJob, job map[string]string) {
	f.t.Helper()
	for _, j := range jobs {
		if (j.id == job["JobId"] || j.id == job["ArrayJobId"]) && j.cancel == job["JobState"] && !j.asked {
			// The job may have just ended.
			f.try(j.user, "scancel", j.id)
			j.asked = true
		}
	}
}

// allJobs is slurmctld's view of every job, unless it is too busy to answer.
func (f *faults) allJobs() (list []map[string]string, ok bool) {
	f.t.Helper()
	r := f.try("root", "scontrol", "--oneliner", "show", "job")
	if r.Exit != 0 {
		f.t.Logf("jobs not read: %s", r.Stderr)
		return nil, false
	}
	for line := range strings.Lines(r.Stdout) {
		job := map[string]string{}
		for _, field := range strings.Fields(line) {
			if k, v, ok := strings.Cut(field, "="); ok && job[k] == "" {
				job[k] = v
			}
		}
		list = append(list, job)
	}
	return list, true
}

// stressed checks one submission and returns how many of its jobs ran.
func (f *faults) stressed(j *stressJob) int {
	f.t.Helper()
	ran := 0
	var all []map[string]string
	f.wait(settleLimit, "slurmctld's list of jobs", func() (ok bool) {
		all, ok = f.allJobs()
		return ok
	})
	for _, job := range all {
		if j.id != job["JobId"] && j.id != job["ArrayJobId"] {
			continue
		}
		if j.asked && job["JobState"] != "COMPLETED" {
			continue
		}
		if job["JobState"] != "COMPLETED" {
			f.t.Errorf("job %s (%s for %s): %s, %s", job["JobId"], j.user, j.profile, job["JobState"], job["Reason"])
			continue
		}
		f.once(j.user, job["JobId"], j.nodes)
		ran++
	}
	if ran == 0 && !j.asked {
		f.t.Errorf("job %s of %s for %s is lost", j.id, j.user, j.profile)
	}
	return ran
}

// boots returns two bounds on the kexecs of a run: the least there can be, when
// all jobs of a profile follow each other, and those of a switch and a return
// for each job by itself.
func boots(jobs []*stressJob) (least, each int) {
	widest := map[string]int{}
	for _, j := range jobs {
		if j.profile == "stock" || j.asked {
			continue
		}
		widest[j.profile] = max(widest[j.profile], j.nodes)
		each += 2 * j.nodes * j.tasks
	}
	for _, nodes := range widest {
		least += 2 * nodes
	}
	return least, each
}
