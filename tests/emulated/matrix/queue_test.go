// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// Users' commands on pending jobs.
func TestQueue(t *testing.T) {
	rows(t, func(o *emulated.Options) {
		o.Lines = []string{"Licenses=app:1"}
		o.SchedulerParameters = []string{"enable_user_top"}
		// Priorities are one for all with the newer default, and no job is above others.
		o.Set = map[string]string{"PriorityType": "priority/basic"}
		o.Partitions = []string{
			"PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
			"PartitionName=other Nodes=ALL OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP",
			"PartitionName=shared Nodes=ALL OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP",
		}
	},
		row{"begin", begin},
		row{"afterok and afternotok", afterOK},
		row{"singleton", singleton},
		row{"array with a limit", arrayLimit},
		row{"licences", licences},
		row{"node range", nodeRange},
		row{"top", top},
		row{"priority", priority},
		row{"another partition", otherPartition},
		row{"exclusive partition", exclusivePartition},
		row{"oversubscribe", oversubscribe},
		row{"hold and release", holdWaiting},
		row{"deadline", deadline},
		row{"sbatch --wait", waitForJob},
		row{"heterogeneous", heterogeneous},
		row{"heterogeneous, a load fails", heterogeneousFails},
		row{"requeue and no-requeue", changeOfRequeue},
		row{"expand", expand},
		row{"burst", burst},
	)
}

func begin(c cluster) {
	boots := c.Kexecs()
	id := c.Sbatch("alice", "0", "-N1", profile, "--begin=now+1hour")
	c.waits(id, "BeginTime")
	c.plain("n1")
	if n := c.Kexecs(); n != boots {
		c.T.Errorf("%d boots for a job that begins in an hour", n-boots)
	}
	c.Must("alice", "scontrol", "update", "jobid="+id, "starttime=now")
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
}

// Profile and plain jobs wait for each other as they do without the product.
func afterOK(c cluster) {
	first := c.held("alice", 1, profile)
	plain := c.Sbatch("alice", "0", "-N1", "--dependency=afterok:"+first)
	never := c.Sbatch("alice", "0", "-N1", profile, "--dependency=afternotok:"+first, "--kill-on-invalid-dep=yes")
	other := c.Sbatch("alice", "0", "-N1", "--kernel-profile=lammps", "--dependency=afterany:"+plain)
	c.waits(plain, "Dependency")
	c.waits(other, "Dependency")
	c.LetGo("alice", first)
	for _, id := range []string{first, plain, other} {
		c.completed(id)
	}
	c.ends(never, "CANCELLED")
	c.ran("alice", plain, "stock", 1)
	c.ran("alice", other, "lammps", 1)
	c.ran("alice", never, "mitgcm", 0)
}

func singleton(c cluster) {
	first := c.held("alice", 1, profile, "--job-name=one")
	plain := c.Sbatch("alice", "0", "-N1", "--job-name=one", "--dependency=singleton")
	last := c.Sbatch("alice", "0", "-N1", profile, "--job-name=one", "--dependency=singleton")
	c.waits(plain, "Dependency")
	c.waits(last, "Dependency")
	c.LetGo("alice", first)
	c.completed(plain)
	c.completed(last)
	c.ran("alice", plain, "stock", 1)
	c.ran("alice", last, "mitgcm", 1)
}

func arrayLimit(c cluster) {
	id := c.Sbatch("alice", "0", "-N1", profile, "--array=0-4%2")
	most := 0
	c.Wait(limit, "all tasks to end", func() bool {
		running := strings.Fields(c.Must("alice", "squeue", "--noheader", "--array", "--job="+id, "--states=RUNNING,CONFIGURING", "--format=%i"))
		most = max(most, len(running))
		return c.Must("alice", "squeue", "--noheader", "--user=alice", "--format=%i") == ""
	})
	if most > 2 {
		c.T.Errorf("%d tasks at a time, want 2", most)
	}
	tasks := map[string]int{}
	for _, r := range c.Records("alice", "") {
		if r["array"] == id {
			tasks[r["task"]]++
			c.CheckRecord(r, emulated.KernelNamed("mitgcm"), "mitgcm")
		}
	}
	for task := range 5 {
		if tasks[fmt.Sprint(task)] != 1 {
			c.T.Errorf("task %d ran %d times", task, tasks[fmt.Sprint(task)])
		}
	}
}

func licences(c cluster) {
	first, goOn := c.inSwitch("n1", "--licenses=app")
	second := c.Sbatch("alice", "0", "-N1", profile, "--licenses=app")
	c.waits(second, "Licenses")
	goOn()
	c.completed(second)
	c.ran("alice", first, "mitgcm", 1)
	c.ran("alice", second, "mitgcm", 1)
	if said := c.Must("root", "scontrol", "show", "licenses"); !strings.Contains(said, "Used=0") {
		c.T.Errorf("licences: %s", said)
	}
}

func nodeRange(c cluster) {
	blocker := c.held("bob", 1, "--nodelist=n1", "--exclusive")
	id := c.Sbatch("alice", "0", "-N1-3", profile)
	c.completed(id)
	nodes := 2
	if job := c.Job(id); job["Restarts"] != "0" && job["NumNodes"] == "1" {
		nodes = 1 // tried again, it takes what is free by then
	}
	c.ran("alice", id, "mitgcm", nodes)
	c.LetGo("bob", blocker)
	c.completed(blocker)
}

// A job of the user's own before the others.
func top(c cluster) {
	c.inOrder(func(first, second, third string) []string {
		c.Must("alice", "scontrol", "top", third)
		return []string{third, first, second}
	})
}

func priority(c cluster) {
	c.inOrder(func(first, second, third string) []string {
		for i, id := range []string{first, second, third} {
			c.Must("root", "scontrol", "update", "jobid="+id, fmt.Sprintf("priority=%d", 1000*(i+1)))
		}
		return []string{third, second, first}
	})
}

// inOrder queues three jobs, for two kernels, and checks that they start in the order that change returns. A job whose
// boot Slurm confuses with an earlier start of slurmd is started again, after the others: then that says nothing, and the
// jobs are queued once more.
func (c cluster) inOrder(change func(first, second, third string) []string) {
	c.T.Helper()
	for range 3 {
		if c.startedInOrder(change) {
			return
		}
	}
	c.T.Error("three times one of the jobs was started a second time")
}

// startedInOrder returns false if a job was started a second time.
func (c cluster) startedInOrder(change func(first, second, third string) []string) bool {
	c.T.Helper()
	blocker := c.held("bob", 3, "--exclusive")
	time.Sleep(2 * time.Second) // the nodes may have registered a moment ago, which Slurm would take for the next boot
	first := c.Sbatch("alice", "0", "-N3", profile)
	second := c.Sbatch("alice", "0", "-N3", "--kernel-profile=lammps")
	third := c.Sbatch("alice", "0", "-N3", profile)
	want := change(first, second, third)
	c.LetGo("bob", blocker)
	for _, id := range want {
		c.completed(id)
	}
	c.ran("alice", first, "mitgcm", 3)
	c.ran("alice", second, "lammps", 3)
	c.ran("alice", third, "mitgcm", 3)
	if i := slices.IndexFunc(want, func(id string) bool { return c.Job(id)["Restarts"] != "0" }); i >= 0 {
		c.T.Logf("job %s was started again: %s", want[i], c.Job(want[i])["AdminComment"])
		return false
	}
	var order []string
	for _, r := range c.Records("alice", "") {
		if slices.Contains(want, r["job"]) && !slices.Contains(order, r["job"]) {
			order = append(order, r["job"])
		}
	}
	if !slices.Equal(order, want) {
		c.T.Errorf("the jobs ran as %v, want %v", order, want)
	}
	return true
}

func otherPartition(c cluster) {
	blocker := c.held("bob", 3, "--exclusive")
	id := c.Sbatch("alice", "0", "-N1", profile)
	if r := c.Try("alice", "scontrol", "update", "jobid="+id, "partition=shared"); r.Exit == 0 {
		c.T.Error("a profile job may go to a partition that shares nodes")
	}
	// Slurm may refuse while the job is being scheduled.
	c.Wait(limit, "the move", func() bool { return c.Try("alice", "scontrol", "update", "jobid="+id, "partition=other").Exit == 0 })
	c.LetGo("bob", blocker)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	if p := c.Job(id)["Partition"]; p != "other" {
		c.T.Errorf("the job ran in %s", p)
	}
}

func exclusivePartition(c cluster) {
	id := c.Sbatch("alice", "0", "-N2", "--partition=other", profile)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 2)
}

func oversubscribe(c cluster) {
	for _, args := range [][]string{{"--oversubscribe"}, {"--exclusive=user"}, {"--partition=shared"}} {
		argv := append([]string{"sbatch", profile}, args...)
		r := c.Try("alice", append(argv, "/emulated/job", "0")...)
		if r.Exit == 0 || !strings.Contains(r.Stderr, "needs whole nodes") {
			c.T.Errorf("%v: exit %d: %s", args, r.Exit, r.Stderr)
		}
	}
	id := c.Sbatch("alice", "0", "-N1", "--exclusive", profile)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
}

func holdWaiting(c cluster) {
	id := c.Sbatch("alice", "0", "-N1", profile, "--hold")
	c.waits(id, "JobHeldUser")
	c.Must("alice", "scontrol", "release", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
}

// Slurm gives up a job that can no longer end in time, at no cost.
func deadline(c cluster) {
	blocker := c.held("bob", 3, "--exclusive")
	boots := c.Kexecs()
	id := c.Sbatch("alice", "0", "-N1", profile, "--time=1", "--deadline=now+70seconds")
	c.ends(id, "DEADLINE")
	c.LetGo("bob", blocker)
	c.completed(blocker)
	c.ran("alice", id, "mitgcm", 0)
	if n := c.Kexecs(); n != boots {
		c.T.Errorf("%d boots for it", n-boots)
	}
}

func waitForJob(c cluster) {
	c.File("alice", "seven.sh", "#!/bin/bash\nsrun /emulated/record\nexit 7\n")
	if r := c.Try("alice", "sbatch", "--wait", "-N1", profile, "seven.sh"); r.Exit != 7 {
		c.T.Errorf("sbatch --wait: exit %d, want the job's 7: %s", r.Exit, r.Stderr)
	}
}

// Components of one job, each on its own kernel, one of them on stock.
func heterogeneous(c cluster) {
	c.File("alice", "het.sh", "#!/bin/bash\nsrun --het-group=0,1,2 /emulated/record\n")
	before := len(c.Records("alice", ""))
	out := c.Must("alice", "sbatch", "--parsable", "-N1", "--nodelist=n1", profile, ":",
		"-N1", "--nodelist=n2", "--kernel-profile=lammps", ":", "-N1", "--nodelist=n3", "het.sh")
	c.completed(out + "+0")
	records := c.Records("alice", "")[before:]
	if len(records) != 3 {
		c.T.Errorf("it ran %d times, want 3: %v", len(records), records)
	}
	kernels := map[string]string{"n1": "mitgcm", "n2": "lammps", "n3": "stock"}
	for _, r := range records {
		c.CheckRecord(r, emulated.KernelNamed(kernels[r["node"]]), kernels[r["node"]])
	}
}

// A component whose node cannot load its kernel: the whole job is requeued at once, and runs when the node is resumed.
func heterogeneousFails(c cluster) {
	c.OK(c.Node("n2").FailNextLoad("lammps"))
	c.File("alice", "het.sh", "#!/bin/bash\nsrun --het-group=0,1 /emulated/record\n")
	before := len(c.Records("alice", ""))
	leader := c.Must("alice", "sbatch", "--parsable", "-N1", "--nodelist=n1", profile, ":",
		"-N1", "--nodelist=n2", "--kernel-profile=lammps", "het.sh")
	c.Wait(30*time.Second, "the job to be requeued", func() bool { return c.Job(leader)["Restarts"] == "1" },
		func() string { return c.State(leader+"+0") + ", " + c.State(leader+"+1") + ", " + c.NodeLine("n2") })
	drained := func() bool { return strings.HasPrefix(c.NodeState("n2")["Reason"], "kernel-broker: lammps@1") }
	c.Wait(limit, "n2 to be drained", drained, func() string { return c.NodeLine("n2") })
	c.Wait(limit, "the job to complete", func() bool {
		// A resume before the broker's next look at Slurm, a second at most after its drain, is undone once.
		if drained() {
			c.Try("root", "scontrol", "update", "nodename=n2", "state=resume")
		}
		c.Try("root", "scontrol", "update", "jobid="+leader, "starttime=now")
		return c.Job(leader + "+0")["JobState"] == "COMPLETED"
	}, func() string { return c.State(leader+"+0") + ", " + c.State(leader+"+1") + ", " + c.NodeLine("n2") })
	if records := c.Records("alice", "")[before:]; len(records) != 2 {
		c.T.Errorf("it ran %d times, want 2: %v", len(records), records)
	}
}

// Whether a job with a profile is requeued is said at submit: its user cannot change it, an administrator can.
func changeOfRequeue(c cluster) {
	id := c.held("alice", 1, "--nodelist=n1", profile)
	for _, requeue := range []string{"0", "1"} {
		if r := c.Try("alice", "scontrol", "update", "jobid="+id, "requeue="+requeue); r.Exit == 0 {
			c.T.Errorf("requeue=%s is accepted", requeue)
		}
	}
	plain := c.held("alice", 1, "--nodelist=n2")
	c.Must("alice", "scontrol", "update", "jobid="+plain, "requeue=0")
	for _, job := range []string{id, plain} {
		c.LetGo("alice", job)
		c.completed(job)
	}
}

// A job that grows would have steps on nodes with another kernel.
func expand(c cluster) {
	id := c.held("alice", 1, "--nodelist=n1", profile)
	for _, args := range [][]string{{"-N1"}, {"-N1", profile}} {
		argv := append([]string{"sbatch", "--dependency=expand:" + id}, args...)
		if r := c.Try("alice", append(argv, "/emulated/job", "0")...); r.Exit == 0 || !strings.Contains(r.Stderr, "expand") {
			c.T.Errorf("%v: exit %d, %s", args, r.Exit, r.Stderr)
		}
	}
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
}

// More short jobs than nodes: each runs once, and reuse saves boots.
func burst(c cluster) {
	before := c.Kexecs()
	var ids []string
	for range 20 {
		ids = append(ids, c.Sbatch("alice", "0", "-N1", profile))
	}
	for _, id := range ids {
		c.completed(id)
		c.ran("alice", id, "mitgcm", 1)
	}
	c.home()
	if n := c.Kexecs() - before; n >= 2*len(ids) {
		c.T.Errorf("%d kexecs for %d jobs: no boot was saved", n, len(ids))
	}
}
