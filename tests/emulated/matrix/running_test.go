// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// Users' and administrators' commands on running jobs.
func TestRunning(t *testing.T) {
	rows(t, nil,
		row{"requeue", requeueRunning},
		row{"requeuehold and release", requeueHold},
		row{"suspend and resume", suspend},
		row{"undrain", undrain},
		row{"cancel_reboot", cancelReboot},
		row{"resume", resume},
		row{"signal", signal},
		row{"steps from another shell", otherShell},
		row{"sattach", sattach},
		row{"no-kill", noKill},
		row{"maintenance reservation", maintenance},
		row{"user reservation", userReservation},
	)
}

func requeueRunning(c cluster) {
	id := c.held("alice", 2, profile)
	c.Must("alice", "scontrol", "requeue", id)
	c.Wait(limit, "the second run", func() bool {
		c.Hurry(id)
		return len(c.Records("alice", id)) == 4
	}, func() string { return c.State(id) })
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 4)
	restarts := map[string]int{}
	for _, r := range c.Records("alice", id) {
		restarts[r["restart"]]++
	}
	if len(restarts) != 2 || restarts["0"] != 2 {
		c.T.Errorf("runs by restart: %v", restarts)
	}
}

func requeueHold(c cluster) {
	id := c.held("alice", 1, "--nodelist=n1", profile)
	c.Must("alice", "scontrol", "requeuehold", id)
	c.Wait(limit, "the job to be held", func() bool {
		j := c.Job(id)
		return j["JobState"] == "PENDING" && j["Priority"] == "0"
	}, func() string { return c.State(id) })
	c.home()
	c.plain("n1")
	c.Must("alice", "scontrol", "release", id)
	c.Wait(limit, "the second run", func() bool {
		c.Hurry(id)
		return len(c.Records("alice", id)) == 2
	}, func() string { return c.State(id) })
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 2)
}

// A suspended job keeps its nodes' kernel, and no other job starts there.
func suspend(c cluster) {
	id := c.held("alice", 1, "--nodelist=n1", profile)
	boots := len(c.Boots())
	c.Must("root", "scontrol", "suspend", id)
	c.WaitJob(id, "SUSPENDED")
	waiting := c.Sbatch("bob", "0", "-N1", "--nodelist=n1")
	other := c.Sbatch("bob", "0", "-N1", "--nodelist=n2")
	c.completed(other) // so the scheduler has run for the first one, too
	if state := c.Job(waiting)["JobState"]; state != "PENDING" {
		c.T.Errorf("a plain job on the node of a suspended one is %s", state)
	}
	c.Must("root", "scontrol", "resume", id)
	c.WaitJob(id, "RUNNING")
	r := c.Try("alice", "srun", "--jobid="+id, "--overlap", "/emulated/record")
	if r.Exit != 0 {
		c.T.Errorf("a step after the suspension: exit %d: %s", r.Exit, r.Stderr)
	}
	if n := len(c.Boots()); n != boots {
		c.T.Errorf("the node booted: %v", c.Boots()[boots:])
	}
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 2)
	c.completed(waiting)
	c.ran("bob", waiting, "stock", 1)
}

// An administrator removes the armed boot's drain while the job runs. The next plain job runs on stock, without manual
// action.
func undrain(c cluster) {
	id := c.held("alice", 1, "--nodelist=n1", profile)
	c.Must("root", "scontrol", "update", "nodename=n1", "state=undrain")
	next := c.Sbatch("bob", "0", "-N1", "--nodelist=n1")
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.completed(next)
	c.ran("bob", next, "stock", 1)
}

// An administrator takes back the armed boot while the job runs: the node is armed again, and returns.
func cancelReboot(c cluster) { c.disarmed("scontrol", "cancel_reboot", "n1") }

// An administrator resumes a node that is "draining", which is the armed boot's drain.
func resume(c cluster) { c.disarmed("scontrol", "update", "nodename=n1", "state=resume") }

func (c cluster) disarmed(argv ...string) {
	c.T.Helper()
	id := c.held("alice", 1, "--nodelist=n1", profile)
	armed := func() bool { return strings.Contains(c.NodeState("n1")["State"], "REBOOT_REQUESTED") }
	c.Wait(limit, "the return to be armed", armed, func() string { return c.NodeLine("n1") })
	c.Must("root", argv...)
	c.Wait(limit, "the return to be armed again", armed, func() string { return c.NodeLine("n1") })
	next := c.Sbatch("bob", "0", "-N1", "--nodelist=n1")
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.completed(next)
	c.ran("bob", next, "stock", 1)
}

// Signals reach the job, and neither they nor its time limit count the boot.
func signal(c cluster) {
	c.File("alice", "trap.sh", `#!/bin/bash
trap 'echo usr1 >>signals' USR1
trap 'echo usr2 >>signals; exit 0' USR2
srun /emulated/record
echo ready >>signals
while :; do sleep 0.1; done
`)
	// Slurm sends it up to half a minute early, and here not before the traps are set.
	id := c.Sbatch("alice", "0", "-N1", profile, "--time=2", "--signal=B:USR2@75", "trap.sh")
	c.Wait(limit, "the job's traps", func() bool { return c.Read("alice", "signals") == "ready" }, func() string { return c.State(id) })
	c.Must("alice", "scancel", "--signal=USR1", "--batch", id)
	c.Wait(limit, "the signal", func() bool { return strings.Contains(c.Read("alice", "signals"), "usr1") })
	c.completed(id) // by USR2, which --signal sends before the time is up
	if said := c.Read("alice", "signals"); said != "ready\nusr1\nusr2" {
		c.T.Errorf("signals: %q", said)
	}
	c.ran("alice", id, "mitgcm", 1)
}

func otherShell(c cluster) {
	id := c.held("alice", 2, profile)
	for _, args := range [][]string{{"--overlap"}, {"--overlap", "-N1", "-n1"}} {
		c.Must("alice", append(append([]string{"srun", "--jobid=" + id}, args...), "/emulated/record")...)
	}
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 5)
}

func sattach(c cluster) {
	c.File("alice", "attach.sh", `#!/bin/bash
srun /bin/sh -c 'echo up >tasks; until [ -e $HOME/go-'$SLURM_JOB_ID' ]; do uname -r; sleep 0.1; done'
`)
	id := c.Sbatch("alice", "0", "-N1", profile, "attach.sh")
	c.Wait(limit, "the step's task", func() bool { return c.Read("alice", "tasks") == "up" }, func() string { return c.State(id) })
	_, done := c.background("alice", "/bin/sh", "-c", "sattach "+id+".0 >attached 2>&1")
	c.Wait(limit, "the step's output", func() bool {
		return strings.Contains(c.Read("alice", "attached"), emulated.KernelNamed("mitgcm").Release)
	}, func() string { return c.Read("alice", "attached") })
	c.LetGo("alice", id)
	if r := c.within(done); r.Exit != 0 {
		c.T.Errorf("sattach: exit %d: %s", r.Exit, r.Stderr)
	}
	c.completed(id)
}

// A job continues without a node: the rest stays on its kernel, and the lost node returns to stock for others.
func noKill(c cluster) {
	id := c.held("alice", 2, "--nodelist=n1,n2", profile, "--no-kill")
	// A step whose node goes ends when Slurm gives that node up, which may take long.
	c.Wait(limit, "the step's end", func() bool {
		return !strings.Contains(c.Must("root", "squeue", "--noheader", "--steps", "--format=%i"), id+".0")
	})
	c.Node("n2").PowerOff()
	c.Must("root", "scontrol", "update", "nodename=n2", "state=down", "reason=it burns")
	c.Wait(limit, "the job to have one node", func() bool { return c.Job(id)["NumNodes"] == "1" }, func() string { return c.State(id) })
	c.Must("alice", "srun", "--jobid="+id, "--overlap", "-N1", "-n1", "/emulated/record")
	c.Node("n2").PowerOn()
	c.Wait(limit, "n2 to be back", func() bool { return c.on("n2", "stock") && !strings.Contains(c.NodeState("n2")["State"], "*") })
	c.Must("root", "scontrol", "update", "nodename=n2", "state=resume")
	c.Settled(limit, "n2")
	c.plain("n2")
	if state := c.Job(id)["JobState"]; state != "RUNNING" {
		c.T.Errorf("the job is %s", state)
	}
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 3)
}

// An administrator reserves the nodes while a profile job runs there: the job ends normally, the nodes return, and the
// reservation is kept.
func maintenance(c cluster) {
	id := c.held("alice", 1, "--nodelist=n1", profile)
	c.Must("root", "scontrol", "create", "reservation", "reservationname=maint", "nodes=n1", "starttime=now",
		"duration=60", "users=root", "flags=maint,ignore_jobs")
	waiting := c.Sbatch("bob", "0", "-N1", "--nodelist=n1")
	next := c.Sbatch("alice", "0", "-N1", "--nodelist=n1", profile)
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.inMaintenance("n1")
	c.plain("n2") // the scheduler works
	for _, job := range []string{waiting, next} {
		if state := c.Job(job)["JobState"]; state != "PENDING" {
			c.T.Errorf("job %s on a node in maintenance is %s", job, state)
		}
	}
	if names := c.reservations(); len(names) != 1 || names[0] != "maint" {
		c.T.Errorf("reservations: %v", names)
	}
	c.Must("root", "scontrol", "delete", "reservationname=maint")
	c.completed(waiting)
	c.completed(next)
	c.ran("bob", waiting, "stock", 1)
	c.ran("alice", next, "mitgcm", 1)
}

// inMaintenance waits until a node is on stock, and kept by the administrators.
func (c cluster) inMaintenance(node string) {
	c.T.Helper()
	c.Wait(limit, node+" on stock in its maintenance", func() bool {
		state := c.NodeState(node)["State"]
		return c.on(node, "stock") && strings.HasPrefix(state, "IDLE") && strings.Contains(state, "MAINT") &&
			!strings.Contains(state, "DRAIN") && !strings.Contains(state, "REBOOT")
	}, func() string { return c.NodeLine(node) })
}

// Jobs with and without a profile in a reservation of their user's.
func userReservation(c cluster) {
	c.Must("root", "scontrol", "create", "reservation", "reservationname=alices", "nodes=n1,n2", "starttime=now",
		"duration=60", "users=alice")
	id := c.held("alice", 2, "--reservation=alices", profile)
	next := c.Sbatch("alice", "0", "-N2", "--reservation=alices", profile)
	refused := c.Try("bob", "sbatch", "-N1", "--reservation=alices", "/emulated/job", "0")
	plain := c.Sbatch("alice", "0", "-N2", "--reservation=alices")
	outside := c.Sbatch("bob", "0", "-N1", "--nodelist=n1")
	c.LetGo("alice", id)
	c.completed(id)
	c.completed(next)
	c.completed(plain)
	c.ran("alice", id, "mitgcm", 2)
	c.ran("alice", next, "mitgcm", 2)
	c.ran("alice", plain, "stock", 2)
	if refused.Exit == 0 {
		c.T.Error("bob may use alice's reservation")
	}
	if state := c.Job(outside)["JobState"]; state != "PENDING" {
		c.T.Errorf("bob's job on a node of alice's reservation is %s", state)
	}
	if j := c.Must("root", "scontrol", "show", "reservation", "alices"); !strings.Contains(j, "Users=alice") || !strings.Contains(j, "Nodes=n[1-2]") {
		c.T.Errorf("the reservation is now %s", j)
	}
	c.Must("root", "scontrol", "delete", "reservationname=alices")
	c.completed(outside)
	c.ran("bob", outside, "stock", 1)
}
