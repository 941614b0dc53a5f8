// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var userKinds = []kind{
	{"submit", 9, (*run).submit},
	{"interactive", 3, (*run).interactive},
	{"late step", 3, (*run).lateStep},
	{"expand", 1, (*run).expand},
	{"cancel", 2, (*run).cancel},
	{"let go", 4, (*run).letOneGo},
	{"shrink", 1, (*run).shrink},
	{"suspend", 1, (*run).suspend},
	{"resume job", 2, (*run).resumeJob},
	{"requeue", 1, (*run).requeue},
	{"hold", 1, (*run).hold},
	{"release", 2, (*run).release},
}

var profiles = []string{"mitgcm", "lammps", "", "mitgcm", ""}

func (r *run) newJob(pick [4]int) *job {
	j := &job{
		name: "m" + strconv.Itoa(r.number), user: users[pick[3]%len(users)],
		profile: profiles[pick[0]%len(profiles)], tasks: 1,
	}
	r.jobs = append(r.jobs, j)
	return j
}

func (j *job) options(nodes int) []string {
	args := []string{"--job-name=" + j.name, "--nodes=" + strconv.Itoa(nodes)}
	if j.profile != "" {
		args = append(args, "--kernel-profile="+j.profile)
	}
	return args
}

// enoughWait is how many jobs may wait before no more are submitted: each costs
// time at the end, and adds nothing before.
const enoughWait = 5

// waiting is how many jobs wait.
func (r *run) waiting() int {
	sum := 0
	for _, seen := range r.seen.jobs {
		if seen["JobState"] == "PENDING" {
			sum++
		}
	}
	return sum
}

// quarantineAfter is how many failed boots, whoever's fault, take a kernel from its users.
const quarantineAfter = 2

// submit hands in a batch job.
func (r *run) submit(pick [4]int) (string, error) {
	if r.waiting() > enoughWait {
		return "", nil
	}
	j := r.newJob(pick)
	nodes := 1 + pick[1]%len(r.nodes)
	if pick[1]%7 == 0 {
		nodes = 1
	}
	var args []string
	switch pick[2] % 10 {
	case 0, 1, 2:
		j.noRequeue = true
		args = append(args, "--no-requeue")
	case 3:
		j.tasks, nodes = 2, 1
		args = append(args, "--array=1-2")
	case 4:
		args = append(args, "--begin=now+"+strconv.Itoa(3+pick[3]%10))
	case 5:
		if other := r.pickJob(pick[3], func(map[string]string, *job) bool { return true }); other != nil {
			args = append(args, "--dependency=afterany:"+other["JobId"])
		}
	case 6:
		nodes = 1
		args = append(args, "--nodelist="+r.nodes[pick[3]%len(r.nodes)].name)
	}
	stay := []string{"held", "0", "2", "5", "8", "3"}[pick[3]%6]
	j.letGo = stay != "held"
	argv := append([]string{"sbatch", "--parsable", "--output=/dev/null"}, j.options(nodes)...)
	argv = append(append(argv, args...), "model-job", stay)
	res, err := r.exec(j.user, argv...)
	told := j.user + ": " + strings.Join(argv, " ")
	if err != nil {
		return told, err
	}
	if res.Exit != 0 {
		r.jobs = r.jobs[:len(r.jobs)-1]
		if r.blows() >= quarantineAfter && strings.Contains(res.Stderr, "is quarantined since") {
			return told + " -> " + strings.TrimSpace(res.Stderr), nil
		}
		return told, violated("%s is refused: %s", told, res.Stderr)
	}
	r.said = time.Now()
	j.id, _, _ = strings.Cut(strings.TrimSpace(res.Stdout), ";")
	return told + " -> " + j.id, nil
}

// beside runs a client that stays as long as its job waits and runs.
func (r *run) beside(user string, argv ...string) string {
	number := r.number
	r.restored.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, 6*time.Minute)
		defer cancel()
		res, err := r.c.Exec(ctx, user, argv...)
		// What it comes to is seen in its job.
		r.note("  (client of #%d: exit %d %v %s)", number, res.Exit, err, strings.ReplaceAll(strings.TrimSpace(res.Stderr), "\n", " / "))
	})
	return user + ": " + strings.Join(argv, " ")
}

// interactive runs srun or salloc.
func (r *run) interactive(pick [4]int) (string, error) {
	if r.waiting() > enoughWait {
		return "", nil
	}
	j := r.newJob(pick)
	j.interactive, j.letGo = true, true
	options := j.options(1 + pick[1]%2)
	if pick[2]%3 == 0 {
		return r.beside(j.user, append(append([]string{"salloc"}, options...), "srun", "./model-step", j.name)...), nil
	}
	return r.beside(j.user, append(append([]string{"srun"}, options...), "./model-step", j.name)...), nil
}

// lateStep runs one more step of a job, on all its nodes.
func (r *run) lateStep(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(seen map[string]string, j *job) bool { return seen["JobState"] == "RUNNING" && !j.interactive })
	if seen == nil {
		return "", nil
	}
	j := r.jobNamed(seen["JobName"])
	return r.beside(j.user, "timeout", "30", "srun", "--jobid="+seen["JobId"], "--overlap", "--nodes="+seen["NumNodes"], "./model-step", j.name), nil
}

// expand gives a second job's node to a running one, which gets a step there.
func (r *run) expand(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(seen map[string]string, j *job) bool {
		return seen["JobState"] == "RUNNING" && !j.interactive && j.tasks == 1
	})
	if seen == nil {
		return "", nil
	}
	j := r.jobNamed(seen["JobName"])
	second := r.newJob([4]int{2, 0, 0, 0})
	second.user, second.interactive, second.letGo = j.user, true, true
	return r.beside(j.user, "timeout", "60", "salloc", "--job-name="+second.name, "--nodes=1",
		"--dependency=expand:"+seen["JobId"], "./model-expand", seen["JobId"], j.name), nil
}

// jobNamed is the model's job.
func (r *run) jobNamed(name string) *job {
	for _, j := range r.jobs {
		if j.name == name {
			return j
		}
	}
	return nil
}

// pickJob picks one of Slurm's jobs that is not over and fits.
func (r *run) pickJob(pick int, fits func(map[string]string, *job) bool) map[string]string {
	var list []map[string]string
	for _, seen := range r.seen.jobs {
		if j := r.jobNamed(seen["JobName"]); j != nil && !over(seen["JobState"]) && fits(seen, j) {
			list = append(list, seen)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[pick%len(list)]
}

func (r *run) cancel(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(map[string]string, *job) bool { return true })
	if seen == nil {
		return "", nil
	}
	j := r.jobNamed(seen["JobName"])
	j.cancelled = true
	_, told, err := r.ask(j.user, "scancel", reference(seen))
	return told, err
}

func (r *run) letOneGo(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(_ map[string]string, j *job) bool { return !j.letGo })
	if seen == nil {
		return "", nil
	}
	j := r.jobNamed(seen["JobName"])
	return j.name, r.letGo(j)
}

func (r *run) shrink(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(seen map[string]string, j *job) bool {
		return seen["JobState"] == "RUNNING" && seen["NumNodes"] > "1" && !j.interactive
	})
	if seen == nil {
		return "", nil
	}
	j := r.jobNamed(seen["JobName"])
	j.shrunk = true
	_, told, err := r.ask(j.user, "scontrol", "update", "jobid="+seen["JobId"], "NumNodes=1")
	return told, err
}

// reference is the job as its user names it: slurmctld finds a task of an array
// that it has requeued by no other name.
func reference(seen map[string]string) string {
	if task := seen["ArrayTaskId"]; task != "" && !strings.ContainsAny(task, "-,:%") {
		return seen["ArrayJobId"] + "_" + task
	}
	return seen["JobId"]
}

// suspend is for running jobs and for those that are not yet.
func (r *run) suspend(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(seen map[string]string, j *job) bool {
		return !j.suspended && seen["JobState"] != "PENDING" && !j.interactive
	})
	if seen == nil {
		return "", nil
	}
	ok, told, err := r.ask("root", "scontrol", "suspend", reference(seen))
	j := r.jobNamed(seen["JobName"])
	if ok {
		j.suspended, j.wasSuspended = true, true
		j.suspendedEarly = r.switches(seen, j)
		r.suspends++
	}
	return told, err
}

// switches reports whether a job with one node waits for the boot into its kernel.
func (r *run) switches(seen map[string]string, j *job) bool {
	return j.profile != "" && seen["JobState"] == "CONFIGURING" && slices.ContainsFunc(r.nodes, func(n *node) bool {
		return n.name == seen["NodeList"] && r.c.Node(n.name).Kernel() != j.release()
	})
}

func (r *run) resumeJob(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(seen map[string]string, j *job) bool {
		return j.suspended && (j.tasks == 1 || seen["JobState"] == "SUSPENDED") // of an array it is one task
	})
	if seen == nil {
		return "", nil
	}
	r.jobNamed(seen["JobName"]).suspended = false
	_, told, err := r.ask("root", "scontrol", "resume", reference(seen))
	return told, err
}

func (r *run) requeue(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(seen map[string]string, j *job) bool {
		return seen["JobState"] != "PENDING" && !j.noRequeue && !j.interactive && !j.suspended
	})
	if seen == nil {
		return "", nil
	}
	_, told, err := r.ask(r.jobNamed(seen["JobName"]).user, "scontrol", "requeue", reference(seen))
	return told, err
}

func (r *run) hold(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(seen map[string]string, j *job) bool { return seen["JobState"] == "PENDING" && !j.interactive })
	if seen == nil {
		return "", nil
	}
	j := r.jobNamed(seen["JobName"])
	ok, told, err := r.ask(j.user, "scontrol", "hold", reference(seen))
	j.held = j.held || ok
	return told, err
}

func (r *run) release(pick [4]int) (string, error) {
	seen := r.pickJob(pick[0], func(_ map[string]string, j *job) bool { return j.held })
	if seen == nil {
		return "", nil
	}
	j := r.jobNamed(seen["JobName"])
	ok, told, err := r.ask(j.user, "scontrol", "release", reference(seen))
	j.held = j.held && !ok
	return told, err
}

// describeJob is a job in messages.
func describeJob(j *job, seen map[string]string) string {
	profile := j.profile
	if profile == "" {
		profile = "no profile"
	}
	return fmt.Sprintf("job %s (%s, %s, no-requeue %t) is %s [%s] %q", j.name, seen["JobId"], profile, j.noRequeue,
		seen["JobState"], seen["Reason"], seen["AdminComment"])
}
