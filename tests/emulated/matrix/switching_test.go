// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// Users' and administrators' commands on jobs whose nodes are switching. A boot
// that takes longer than ResumeTimeout would end its job before the time limit.
func TestSwitching(t *testing.T) {
	rows(t, func(o *emulated.Options) { o.ResumeTimeout = 3 * time.Minute },
		row{"requeue", requeueInSwitch},
		row{"requeuehold and release", requeueHoldInSwitch},
		row{"hold", holdInSwitch},
		row{"signal", signalInSwitch},
		row{"salloc ends", sallocEnds},
		row{"srun is interrupted", srunEnds},
		row{"maintenance reservation", maintenanceInSwitch},
		row{"time limit", timeLimit},
		row{"no-requeue", noRequeue},
		row{"suspend and resume", suspendInSwitch},
		row{"down", downInSwitch},
	)
}

func requeueInSwitch(c cluster) {
	id, goOn := c.inSwitch("n1")
	c.Must("alice", "scontrol", "requeue", id)
	goOn()
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
}

func requeueHoldInSwitch(c cluster) {
	id, goOn := c.inSwitch("n1")
	c.Must("alice", "scontrol", "requeuehold", id)
	goOn()
	c.home()
	if j := c.Job(id); j["JobState"] != "PENDING" || j["Priority"] != "0" {
		c.T.Errorf("the job is %s with priority %s", j["JobState"], j["Priority"])
	}
	c.plain("n1")
	// The hold may be an administrator's for a moment (ADR 0023).
	c.Wait(limit, "the user's release", func() bool { return c.Try("alice", "scontrol", "release", id).Exit == 0 })
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
}

// Slurm only holds pending jobs. A job whose nodes boot continues, whatever the command answers.
func holdInSwitch(c cluster) {
	id, goOn := c.inSwitch("n1")
	c.Try("alice", "scontrol", "hold", id)
	goOn()
	c.Wait(limit, "the job to end or be held", func() bool {
		j := c.Job(id)
		return j["JobState"] == "COMPLETED" || j["JobState"] == "PENDING" && j["Priority"] == "0"
	}, func() string { return c.State(id) })
	c.Try("alice", "scontrol", "release", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
}

// Slurm delivers a signal to the script and the step that start later: both ignore it.
func signalInSwitch(c cluster) {
	c.File("alice", "deaf.sh", "#!/bin/bash\ntrap '' USR1\nsrun bash -c \"trap '' USR1; exec /emulated/record\"\n")
	id, goOn := c.inSwitch("n1", "deaf.sh")
	c.Try("alice", "scancel", "--signal=USR1", id)
	c.Try("alice", "scancel", "--signal=USR1", "--batch", id)
	goOn()
	c.ends(id, "COMPLETED", "FAILED")
	if exit := c.Job(id)["ExitCode"]; exit == "0:10" || exit == "138:0" {
		return // it came with the begin of the script or of its step, before the trap
	}
	c.ran("alice", id, "mitgcm", 1)
}

// sallocEnds: the user ends salloc while it waits for the nodes.
func sallocEnds(c cluster) { c.leaves("salloc", "-N1", "--nodelist=n1", profile, "true") }

func srunEnds(c cluster) { c.leaves("srun", "-N1", "--nodelist=n1", profile, "/emulated/record") }

func (c cluster) leaves(argv ...string) {
	before := len(c.Records("alice", ""))
	end, done := c.background("alice", argv...)
	c.Wait(limit, "n1 to boot", func() bool {
		select {
		case r := <-done:
			// Slurm took slurmd's start of the job before for this one's boot, and ends what it cannot requeue.
			c.T.Logf("again: %s", r.Stderr)
			end, done = c.background("alice", argv...)
		default:
		}
		return c.on("n1", "mitgcm")
	})
	c.OK(c.Node("n1").Pause(c.Ctx))
	id := c.Must("alice", "squeue", "--noheader", "--user=alice", "--format=%i")
	end()
	c.within(done)
	c.Wait(limit, "the job to be over", func() bool { return c.Over(id) }, func() string { return c.State(id) })
	c.OK(c.Node("n1").Resume(c.Ctx))
	c.home()
	c.plain("n1")
	if n := len(c.Records("alice", "")); n != before {
		c.T.Error("a step ran")
	}
}

// An administrator reserves the node for maintenance while it switches.
func maintenanceInSwitch(c cluster) {
	id, goOn := c.inSwitch("n1")
	c.Must("root", "scontrol", "create", "reservation", "reservationname=maint", "nodes=n1", "starttime=now",
		"duration=60", "users=root", "flags=maint,ignore_jobs")
	goOn()
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.inMaintenance("n1")
	c.Must("root", "scontrol", "delete", "reservationname=maint")
}

// A boot longer than the job's time limit costs the job nothing; the limit counts from the job's start and ends it.
func timeLimit(c cluster) {
	id := c.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--time=1", profile)
	c.Wait(limit, "n1 to boot", func() bool { return c.on("n1", "mitgcm") }, func() string { return c.State(id) })
	c.OK(c.Node("n1").Pause(c.Ctx))
	c.Wait(limit, "a minute in the switch", func() bool { return c.Job(id)["RunTime"] >= "00:01:05" },
		func() string { return c.State(id) + " " + c.Job(id)["RunTime"] })
	c.OK(c.Node("n1").Resume(c.Ctx))
	c.recorded("alice", id, 1)
	c.ends(id, "TIMEOUT")
	c.ran("alice", id, "mitgcm", 1)
}

// A job with --no-requeue that is requeued in the switch, in which nothing of it has run, runs later, and has its wish still:
// a node that is lost after that ends it for good.
func noRequeue(c cluster) {
	id, goOn := c.inSwitch("n1", "--no-requeue", "/emulated/job", "held")
	c.Must("root", "scontrol", "requeue", id)
	goOn()
	c.Wait(limit, "the job's step", func() bool {
		c.Hurry(id)
		return len(c.Records("alice", id)) == 1
	}, func() string { return c.State(id) })
	c.Wait(limit, "the job to have its --no-requeue back", func() bool { return c.Job(id)["Requeue"] == "0" }, func() string { return c.State(id) })
	c.Node("n1").Reset()
	c.Wait(limit, "the job to end with its node", func() bool { return c.Over(id) }, func() string { return c.State(id) })
	c.home()
	if state := c.Job(id)["JobState"]; state != "NODE_FAIL" {
		c.T.Errorf("the job is %s", state)
	}
	c.ran("alice", id, "mitgcm", 1)
}

// Slurm never launches a job that is suspended before it begins: it has to be started again.
func suspendInSwitch(c cluster) {
	id, goOn := c.inSwitch("n1")
	c.Must("root", "scontrol", "suspend", id)
	goOn()
	c.WaitJob(id, "SUSPENDED")
	c.Must("root", "scontrol", "resume", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
}

// Slurm itself sets a node down for a boot that it issues: what an administrator says meanwhile remains as a drain.
func downInSwitch(c cluster) { c.setInTheSwitch("down", "DRAIN") }
