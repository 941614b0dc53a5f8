// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// preempting has a partition main whose jobs are preempted by those of partition urgent.
func preempting(mode string) func(*emulated.Options) {
	return func(o *emulated.Options) {
		o.Set = map[string]string{"PreemptType": "preempt/partition_prio", "PreemptMode": mode}
		own := mode
		if mode == "SUSPEND,GANG" {
			own = "SUSPEND"
		}
		o.Partitions = []string{
			"PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=" + own,
			"PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF",
		}
	}
}

// Preempted jobs are requeued.
func TestPreemptRequeue(t *testing.T) {
	rows(t, preempting("REQUEUE"),
		row{"profile job by plain", func(c cluster) { c.preempts("alice", profile, "mitgcm", "bob", "--comment=plain", "stock") }},
		row{"plain job by profile", func(c cluster) { c.preempts("bob", "--comment=plain", "stock", "alice", profile, "mitgcm") }},
		row{"profile job by another profile", func(c cluster) {
			c.preempts("alice", profile, "mitgcm", "bob", "--kernel-profile=lammps", "lammps")
		}},
	)
}

// keepsNodes reports whether a job with a profile keeps its nodes from an urgent one: they are armed, so drained.
func (c cluster) keepsNodes(arg string) bool {
	return arg == profile && !slurmroot.PreemptsOnDrainedNodes(c.Options().Slurm)
}

// givesNoWay checks that an urgent job waits for the end of the other, and runs then.
func (c cluster) givesNoWay(user, id, kernel, urgentUser, urgent, urgentKernel string) {
	c.T.Helper()
	c.Wait(limit, "the scheduler to look at the urgent job", func() bool { return c.Job(urgent)["LastSchedEval"] > c.Job(urgent)["SubmitTime"] },
		func() string { return c.State(urgent) })
	if state := c.Job(id)["JobState"]; state != "RUNNING" {
		c.T.Errorf("the job on the nodes is %s", state)
	}
	c.LetGo(user, id)
	c.completed(id)
	c.completed(urgent)
	c.ran(user, id, kernel, 3)
	c.ran(urgentUser, urgent, urgentKernel, 3)
}

// preempts has a job on all nodes, and another that is more urgent.
func (c cluster) preempts(user, arg, kernel, urgentUser, urgentArg, urgentKernel string) {
	c.T.Helper()
	id := c.held(user, 3, "--exclusive", arg)
	urgent := c.Sbatch(urgentUser, "0", "-N3", "--exclusive", "--partition=urgent", urgentArg)
	if c.keepsNodes(arg) {
		c.givesNoWay(user, id, kernel, urgentUser, urgent, urgentKernel)
		return
	}
	c.Wait(limit, "the urgent job", func() bool { return c.Job(urgent)["JobState"] == "COMPLETED" },
		func() string { return c.State(urgent) + "; the other is " + c.State(id) + "; " + c.NodeLine("n1") })
	c.ran(urgentUser, urgent, urgentKernel, 3)
	c.Wait(limit, "the second run", func() bool {
		c.Hurry(id)
		return len(c.Records(user, id)) == 6
	}, func() string { return c.State(id) })
	c.LetGo(user, id)
	c.completed(id)
	c.ran(user, id, kernel, 6)
}

// Without preemption too, a job of a partition with a higher tier is next for the node, and not the one that wants the
// kernel which the node runs.
func TestTiers(t *testing.T) {
	rows(t, func(o *emulated.Options) {
		preempting("OFF")(o)
		o.Set = map[string]string{"PreemptType": "preempt/none"}
	}, row{"plain job before the same kernel", func(c cluster) {
		first := c.held("alice", 1, "--nodelist=n1", profile)
		same := c.Sbatch("alice", "0", "-N1", "--nodelist=n1", profile)
		urgent := c.Sbatch("bob", "0", "-N1", "--nodelist=n1", "--partition=urgent")
		c.Wait(limit, "the scheduler to look at both", func() bool {
			return c.Job(same)["LastSchedEval"] != "Unknown" && c.Job(urgent)["LastSchedEval"] != "Unknown"
		}, func() string { return c.State(same) + ", " + c.State(urgent) })
		c.LetGo("alice", first)
		c.completed(urgent)
		c.completed(same)
		c.ran("bob", urgent, "stock", 1)
		c.ran("alice", same, "mitgcm", 1)
		if ended, began := c.Job(urgent)["EndTime"], c.Job(same)["StartTime"]; ended > began {
			c.T.Errorf("the urgent job ended at %s, the other began at %s", ended, began)
		}
	}})
}

// Preempted jobs are cancelled.
func TestPreemptCancel(t *testing.T) {
	rows(t, preempting("CANCEL"),
		row{"profile job by plain", func(c cluster) { c.cancels("alice", profile, "mitgcm", "bob", "--comment=plain", "stock") }},
		row{"plain job by profile", func(c cluster) { c.cancels("bob", "--comment=plain", "stock", "alice", profile, "mitgcm") }},
	)
}

func (c cluster) cancels(user, arg, kernel, urgentUser, urgentArg, urgentKernel string) {
	c.T.Helper()
	id := c.held(user, 3, "--exclusive", arg)
	urgent := c.Sbatch(urgentUser, "0", "-N3", "--exclusive", "--partition=urgent", urgentArg)
	if c.keepsNodes(arg) {
		c.givesNoWay(user, id, kernel, urgentUser, urgent, urgentKernel)
		return
	}
	c.Wait(limit, "the urgent job", func() bool { return c.Job(urgent)["JobState"] == "COMPLETED" },
		func() string { return c.State(urgent) + "; the other is " + c.State(id) + "; " + c.NodeLine("n1") })
	c.ends(id, "PREEMPTED", "CANCELLED")
	c.ran(urgentUser, urgent, urgentKernel, 3)
	c.ran(user, id, kernel, 3)
}

// Preempted jobs are suspended: their processes stay on the node, so it must not boot.
func TestPreemptSuspend(t *testing.T) {
	rows(t, preempting("SUSPEND,GANG"),
		row{"plain job by plain", func(c cluster) {
			id, urgent := c.suspends("bob", "--comment=plain", "alice", "--comment=plain")
			c.completed(urgent)
			c.goesOn("bob", id, "stock")
			c.ran("alice", urgent, "stock", 1)
		}},
		row{"plain job by profile", plainGivesWay},
		row{"profile job by plain", profileGivesWay},
	)
}

// suspends has a job on a node, and another there that is more urgent.
func (c cluster) suspends(user, arg, urgentUser, urgentArg string) (id, urgent string) {
	c.T.Helper()
	id = c.held(user, 1, "--nodelist=n1", arg)
	urgent = c.Sbatch(urgentUser, "0", "-N1", "--nodelist=n1", "--partition=urgent", urgentArg)
	c.plain("n2") // so the scheduler has run
	return id, urgent
}

// goesOn checks that the preempted job is not lost: it runs another step on its kernel, and ends, having started once.
func (c cluster) goesOn(user, id, kernel string) {
	c.T.Helper()
	c.WaitJob(id, "RUNNING")
	c.Must(user, "srun", "--jobid="+id, "--overlap", "/emulated/record")
	c.LetGo(user, id)
	c.WaitJob(id, "COMPLETED")
	// A slurmd that starts in the second of the allocation may be taken for the boot: the job is started again, before it began.
	const missed = "Slurm took an earlier start of slurmd for its boot"
	if restarts := c.Job(id)["Restarts"]; restarts != "0" && !strings.Contains(c.Must("root", "kernelctl", "job", "list", "-o", "wide"), missed) {
		c.T.Errorf("the job that gave way was restarted %s times", restarts)
	}
	c.ran(user, id, kernel, 2)
}

// A node with a suspended job boots no other kernel: the urgent job is held with the reason, and the other one resumes
// at once.
func plainGivesWay(c cluster) {
	id, urgent := c.suspends("bob", "--comment=plain", "alice", profile)
	c.Wait(limit, "the urgent job to be held", func() bool {
		j := c.Job(urgent)
		return j["JobState"] == "PENDING" && j["Priority"] == "0" && strings.Contains(j["AdminComment"], "is shared with job "+id)
	}, func() string { return c.State(urgent) + ": " + c.Job(urgent)["AdminComment"] })
	if !c.on("n1", "stock") {
		c.T.Error("the node booted")
	}
	c.goesOn("bob", id, "stock")
	c.Must("alice", "scontrol", "release", urgent)
	c.completed(urgent)
	c.ran("alice", urgent, "mitgcm", 1)
}

// No plain job gets on a job's kernel, however urgent it is.
func profileGivesWay(c cluster) {
	id, urgent := c.suspends("alice", profile, "bob", "--comment=plain")
	c.goesOn("alice", id, "mitgcm")
	c.completed(urgent)
	c.ran("bob", urgent, "stock", 1)
}
