// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A job without a profile and one with stock cost no boot.
func plainJobs(c *cluster) {
	c.costs(0, func() {
		plain := c.sbatch("alice", "-N2")
		stock := c.sbatch("bob", "-N2", "--kernel-profile=stock")
		for user, id := range map[string]string{"alice": plain, "bob": stock} {
			job := c.waitJob(id, "COMPLETED")
			c.ranOn(user, id, "stock", 2)
			if job["Reboot"] != "0" || job["AdminComment"] != "" {
				c.t.Errorf("job %s was changed: %v", id, job)
			}
		}
	})
}

// Two users side by side, one with sbatch and a version, one with srun. The first one's requeue setting is restored as
// soon as the kernel is ready.
func sbatchAndSrun(c *cluster) {
	c.costs(4, func() {
		batch := c.held("alice", "-N1", "--nodelist=n1", "--no-requeue", "--kernel-profile=mitgcm@1")
		out := c.must("bob", "srun", "-N1", "--nodelist=n2", "--kernel-profile=mitgcm",
			"bash", "-c", `"$HOME/record.sh"; echo; echo $SLURM_JOB_ID`)
		c.ranOn("bob", lastLine(out), "mitgcm", 1)

		c.waitJob(batch, "RUNNING")
		c.wait(switchLimit, "the user's --no-requeue", func() bool { return c.job(batch)["Requeue"] == "0" })
		c.letGo("alice", batch)
		c.waitJob(batch, "COMPLETED")
		for _, r := range c.ranOn("alice", batch, "mitgcm", 1) {
			if r["version"] != "1" || r["node"] != "n1" {
				c.t.Errorf("job %s: %v", batch, r)
			}
		}
	})
}

const sallocScript = `#!/bin/bash
echo "$SLURM_JOB_ID" > "$HOME/salloc-id"
srun "$HOME/record.sh" || exit 10
srun --kernel-profile=mitgcm true || exit 11
srun --kernel-profile=quiet touch "$HOME/stolen" && exit 12
srun --kernel-profile=stock touch "$HOME/stolen" && exit 13
sbatch --parsable "$HOME/job.sh" > "$HOME/inner-id" || exit 14
`

// An interactive allocation: its steps run on its kernel and on no other, and
// a job submitted from within it is a job of its own.
func sallocAndSteps(c *cluster) {
	c.file("alice", "salloc.sh", sallocScript)
	r := c.try("alice", "salloc", "-N2", "--kernel-profile=mitgcm", "./salloc.sh")
	if r.Exit != 0 {
		c.t.Fatalf("salloc: exit %d: %s%s", r.Exit, r.Stdout, r.Stderr)
	}
	for _, word := range []string{"quiet", "stock", "all steps"} {
		if !strings.Contains(r.Stderr, word) {
			c.t.Errorf("salloc: %q is not in %s", word, r.Stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(c.Home("alice"), "stolen")); err == nil {
		c.t.Error("a step that requested another kernel ran")
	}
	c.ranOn("alice", c.read("alice", "salloc-id"), "mitgcm", 2)
	inner := c.read("alice", "inner-id")
	c.waitJob(inner, "COMPLETED")
	c.ranOn("alice", inner, "stock", 1)
}

// tasks returns the records of an array by task.
func (c *cluster) tasks(user, array string) map[string]ran {
	c.t.Helper()
	tasks := map[string]ran{}
	for _, r := range c.records(user, "") {
		if r["array"] != array {
			continue
		}
		if _, twice := tasks[r["task"]]; twice {
			c.t.Errorf("task %s_%s ran twice", array, r["task"])
		}
		tasks[r["task"]] = r
	}
	return tasks
}

// arrayRan waits for an array of n tasks and checks each.
func (c *cluster) arrayRan(user, array, profile string, n int) {
	c.t.Helper()
	for i := 1; i <= n; i++ {
		c.waitJob(fmt.Sprintf("%s_%d", array, i), "COMPLETED")
	}
	tasks := c.tasks(user, array)
	if len(tasks) != n {
		c.t.Fatalf("array %s: %d tasks ran, want %d", array, len(tasks), n)
	}
	for _, r := range tasks {
		c.checkRecord(r, profile)
	}
}

// Four tasks on two nodes pay one switch per node, not one per task.
func arrayReuse(c *cluster) {
	c.reuses(4, func() {
		array := c.sbatch("alice", "-N1", "--array=1-4", "--kernel-profile=mitgcm")
		c.arrayRan("alice", array, "mitgcm", 4)
	})
}

// The same with plain jobs behind it: they wait for the return.
func arrayAmongPlainJobs(c *cluster) {
	c.reuses(4, func() {
		array := c.sbatch("alice", "-N1", "--array=1-4", "--kernel-profile=mitgcm")
		var plain []string
		for range 4 {
			plain = append(plain, c.sbatch("bob", "-N1"))
		}
		c.arrayRan("alice", array, "mitgcm", 4)
		for _, id := range plain {
			c.waitJob(id, "COMPLETED")
			c.ranOn("bob", id, "stock", 1)
		}
	})
}

// The next in line is another user's.
func reuseAcrossUsers(c *cluster) {
	var before, after map[string]string
	c.reuses(4, func() {
		first := c.held("alice", "-N2", "--kernel-profile=mitgcm")
		second := c.sbatch("bob", "-N2", "--kernel-profile=mitgcm@1")
		c.waitJob(first, "RUNNING")
		c.letGo("alice", first)
		c.waitJob(first, "COMPLETED") // after the second, if Slurm requeued it
		c.waitJob(second, "COMPLETED")
		before, after = bootIDs(c.ranOn("alice", first, "mitgcm", 2)), bootIDs(c.ranOn("bob", second, "mitgcm", 2))
	})
	for node, id := range before {
		if after[node] != id {
			c.t.Errorf("node %s was booted between the jobs", node)
		}
	}
}

// Jobs that wait behind a profile's job never run on its kernel.
func returnBeforeOthers(c *cluster) {
	first := c.held("alice", "-N2", "--kernel-profile=mitgcm")
	jobs := map[string]string{}
	for range 3 {
		jobs[c.sbatch("bob", "-N1")] = "stock"
	}
	jobs[c.sbatch("bob", "-N1", "--kernel-profile=quiet@1")] = "quiet"
	jobs[c.sbatch("bob", "-N2", "--kernel-profile=stock")] = "stock"
	c.waitJob(first, "RUNNING")
	c.letGo("alice", first)
	c.waitJob(first, "COMPLETED")
	during := bootIDs(c.ranOn("alice", first, "mitgcm", 2))
	for id, profile := range jobs {
		c.waitJob(id, "COMPLETED")
		records := c.records("bob", id)
		if len(records) == 0 {
			c.t.Errorf("job %s did not run", id)
		}
		for _, r := range records {
			c.checkRecord(r, profile)
			if during[r["node"]] == r["boot_id"] {
				c.t.Errorf("job %s ran on node %s as job %s had left it", id, r["node"], first)
			}
		}
	}
}

// Components of one job, each on its requested kernel.
func heterogeneousWithPlain(c *cluster) {
	c.heterogeneous([]string{"--kernel-profile=mitgcm"}, nil, "mitgcm", "stock")
}

func heterogeneousTwoProfiles(c *cluster) {
	c.heterogeneous([]string{"--kernel-profile=quiet@1"}, []string{"--kernel-profile=mitgcm"}, "quiet", "mitgcm")
}

func (c *cluster) heterogeneous(first, second []string, profiles ...string) {
	c.t.Helper()
	c.file("alice", "het.sh", "#!/bin/bash\nsrun --het-group=0,1 \"$HOME/record.sh\"\n")
	before := len(c.records("alice", ""))
	args := append([]string{"-N1", "--nodelist=n1"}, first...)
	args = append(args, ":", "-N1", "--nodelist=n2")
	args = append(args, second...)
	id := c.sbatch("alice", append(args, "het.sh")...)
	c.waitJob(id+"+0", "COMPLETED")
	c.waitJob(id+"+1", "COMPLETED")
	records := c.records("alice", "")[before:]
	if len(records) != 2 {
		c.t.Fatalf("job %s: ran %d times, want 2: %v", id, len(records), records)
	}
	for _, r := range records {
		switch r["node"] {
		case "n1":
			c.checkRecord(r, profiles[0])
		case "n2":
			c.checkRecord(r, profiles[1])
		default:
			c.t.Errorf("job %s: %v", id, r)
		}
	}
}
