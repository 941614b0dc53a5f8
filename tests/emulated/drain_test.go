// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Administrators' states and reasons of nodes survive every switch.

// holdLimit is how long a test observes something that must not change.
const holdLimit = 15 * time.Second

// registered is for slurmds that have just started: a registration in the second in which Slurm is asked for a boot is that
// boot to Slurm, and the node is back in service without one.
const registered = 2 * time.Second

// drained reports whether the node is drained for the reason.
func (s *Trial) drained(node, reason string) bool {
	n := s.NodeState(node)
	return strings.Contains(n["State"], "DRAIN") && strings.Contains(n["Reason"], reason)
}

// homeAndDrained reports whether a drained node has returned.
func (s *Trial) homeAndDrained(node, reason string) bool {
	return s.on(node, "stock") && strings.HasPrefix(s.NodeState(node)["State"], "IDLE+DRAIN") && s.drained(node, reason)
}

// takesNothing checks that a plain job does not get the node.
func (s *Trial) takesNothing(node string) {
	s.T.Helper()
	id := s.Sbatch("bob", "0", "-N1", "--nodelist="+node)
	s.Never(5*time.Second, "a plain job on "+node, func() bool { return s.Job(id)["JobState"] != "PENDING" })
	s.Must("bob", "scancel", id)
}

// An administrator drains a node while a profile job runs on it. After the job
// the node is on stock, and drained still for the administrator's reason.
func TestDrainSurvivesReturn(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.WaitJob(id, "RUNNING")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	s.Must("root", "scontrol", "update", "nodename=n1", "state=drain", "reason=bad DIMM, do not use")
	s.LetGo("alice", id)
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 1)
	s.Wait(Limit, "n1 on stock", func() bool { return s.on("n1", "stock") }, func() string { return s.NodeLine("n1") })
	s.staysDrained("n1", "bad DIMM, do not use")
	s.takesNothing("n1")
}

// on reports whether a node runs the kernel of that name.
func (s *Trial) on(node, kernel string) bool {
	return s.Node(node).Kernel() == KernelNamed(kernel).Release
}

// staysDrained observes a drained node for a while. Slurm may be seen between two commands that restore its state: then
// no slurmd answers, and no job starts.
func (s *Trial) staysDrained(node, reason string) {
	s.T.Helper()
	undone := func() bool {
		n := s.NodeState(node)
		said := strings.Contains(n["State"], "DRAIN") && strings.Contains(n["Reason"], reason)
		return !said && !strings.Contains(n["State"], "NOT_RESPONDING")
	}
	if s.Within(holdLimit, undone) {
		s.T.Fatalf("the drain is undone: %s", s.NodeLine(node))
	}
	s.Wait(Limit, node+" to be idle, drained and on stock", func() bool { return s.homeAndDrained(node, reason) },
		func() string { return s.NodeLine(node) })
}

// An administrator drains a node that is switching to a profile. Whatever happens to the job, the node ends on stock and
// drained for that reason.
func TestDrainInSwitch(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.BootTime = 3 * time.Second })
	id := s.Sbatch("alice", "4", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.Wait(Limit, "n1 in its switch", func() bool { return s.inSwitch("n1") })
	s.Must("root", "scontrol", "update", "nodename=n1", "state=drain", "reason=bad fan")
	s.Wait(Limit, "n1 on stock, idle and drained", func() bool {
		return (s.Over(id) || s.Job(id)["JobState"] == "PENDING") && s.homeAndDrained("n1", "bad fan")
	}, func() string { return s.NodeLine("n1") + ", job " + s.State(id) })
	s.staysDrained("n1", "bad fan")
	s.takesNothing("n1")
}

// inSwitch reports whether Slurm waits for a node's boot.
func (s *Trial) inSwitch(node string) bool {
	state := s.NodeState(node)["State"]
	return strings.Contains(state, "POWERING_UP") || strings.Contains(state, "REBOOT_ISSUED")
}

// An administrator sets a node DOWN while a profile job runs on it. Slurm ends or
// requeues the job, and the node stays DOWN for the administrator's reason.
func TestDownSurvives(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.WaitJob(id, "RUNNING")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	s.Must("root", "scontrol", "update", "nodename=n1", "state=down", "reason=smoke in rack 7")
	s.staysDown("n1", "smoke in rack 7")
	if boots := s.BootsOf("n1"); len(boots) < 3 || s.Node("n1").Kernel() != KernelNamed(StockName).Release {
		t.Errorf("it did not return: booted by %v, runs %s", boots, s.Node("n1").Kernel())
	}
}

// The same while the broker is away, of a node whose job is not requeued: what tells it from a drain is how the job ended.
func TestDownWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm", "--no-requeue")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	s.Wait(Limit, "the return to be armed, and no requeue", func() bool {
		return strings.Contains(s.NodeState("n1")["State"], "REBOOT_REQUESTED") && s.Job(id)["Requeue"] == "0"
	})
	s.OK(s.Broker().Kill(s.Ctx))
	s.Must("root", "scontrol", "update", "nodename=n1", "state=down", "reason=smoke in rack 7")
	s.Wait(Limit, "Slurm to boot n1", func() bool { return strings.Contains(s.NodeState("n1")["State"], "REBOOT_ISSUED") })
	s.OK(s.Broker().Start(s.Ctx))
	s.Wait(Limit, "n1 on stock", func() bool { return s.Node("n1").Kernel() == KernelNamed(StockName).Release })
	s.staysDown("n1", "smoke in rack 7")
}

// staysDown checks that a node stays as an administrator set it down, and takes no job.
func (s *Trial) staysDown(node, reason string) {
	s.T.Helper()
	down := func() bool {
		n := s.NodeState(node)
		return strings.HasPrefix(n["State"], "DOWN") && strings.Contains(n["Reason"], reason)
	}
	// Restoring Slurm's state takes three commands, between which the node is drained.
	const inPassing = 2 * time.Second
	since := time.Now()
	if s.Within(25*time.Second, func() bool {
		if down() {
			since = time.Now()
		}
		return time.Since(since) > inPassing
	}) {
		s.T.Fatalf("it is no longer down: %s", s.NodeLine(node))
	}
	s.takesNothing(node)
}

// A reboot by scontrol is a reboot: a new boot id, and the node idle again.
func TestScontrolReboot(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.BootTime = 3 * time.Second
		o.ResumeTimeout = 90 * time.Second
	})
	before := s.Node("n3").BootID()
	pause(s.Ctx, registered)
	s.Must("root", "scontrol", "reboot", "ASAP", "nextstate=resume", "reason=kernel security update", "n3")
	s.Wait(time.Minute, "n3's next boot", func() bool { return s.Node("n3").BootID() != before }, func() string { return s.NodeLine("n3") })
	s.Settled(Limit, "n3")
	if boots := s.BootsOf("n3"); boots[len(boots)-1] != "reboot" {
		t.Errorf("n3 booted by %v", boots)
	}
}

// A reboot after which the node is to be down leaves it down, also without a reason, which Slurm gives armed returns too.
func TestScontrolRebootToDown(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	before := s.Node("n3").BootID()
	pause(s.Ctx, registered)
	s.Must("root", "scontrol", "reboot", "ASAP", "nextstate=down", "n3")
	s.Wait(time.Minute, "n3's next boot", func() bool { return s.Node("n3").BootID() != before }, func() string { return s.NodeLine("n3") })
	s.Wait(time.Minute, "n3 to be down", func() bool {
		n := s.NodeState("n3")
		return strings.HasPrefix(n["State"], "DOWN") && strings.Contains(n["Reason"], "reboot complete")
	}, func() string { return s.NodeLine("n3") })
	s.Never(15*time.Second, "n3 is back in service", func() bool { return !strings.HasPrefix(s.NodeState("n3")["State"], "DOWN") })
	s.Must("root", "scontrol", "update", "nodename=n3", "state=resume")
	s.Settled(Limit, "n3")
}

// Slurm passes over a node whose return is armed when it is asked to reboot it: a rule for once makes the return a reboot.
func TestScontrolRebootUnderAJob(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	s.Wait(Limit, "the return to be armed", func() bool { return strings.Contains(s.NodeState("n1")["State"], "REBOOT_REQUESTED") })
	s.Try("root", "scontrol", "reboot", "ASAP", "nextstate=resume", "reason=kernel security update", "n1")
	if n := s.NodeState("n1"); strings.Contains(n["Reason"], "security update") {
		t.Errorf("Slurm takes the reboot: %s", s.NodeLine("n1"))
	}
	s.Must("root", "kernelctl", "hardware", "rule", "set", "update-n1", "--node", "n1", "--once", "--reason", "kernel security update")
	s.LetGo("alice", id)
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 1)
	s.Settled(Limit, "n1")
	if boots := s.BootsOf("n1"); !slices.Equal(boots, []string{"power on", "kexec", "reboot"}) {
		t.Errorf("n1 booted by %v", boots)
	}
}

// A profile job that is given a node without an agent is held with the reason, and the node takes plain jobs.
func TestNodeWithoutAgent(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.WithoutAgent = []string{"n3"} })
	id := s.Sbatch("alice", "0", "-N1", "--nodelist=n3", "--kernel-profile=mitgcm")
	s.Wait(time.Minute, "the job to be held", func() bool { return s.Job(id)["JobState"] == "PENDING" && s.Job(id)["Priority"] == "0" },
		func() string { return s.State(id) + ", " + s.NodeLine("n3") })
	if comment := s.Job(id)["AdminComment"]; !strings.Contains(comment, "no agent has ever connected from [n3]") {
		t.Errorf("its comment: %s", comment)
	}
	plain := s.Sbatch("bob", "0", "-N1", "--nodelist=n3")
	s.WaitJob(plain, "COMPLETED")
	// Without an agent nobody tells a job which kernel it has.
	if ran, held := s.Records("bob", plain), s.Records("alice", id); len(ran) != 1 || len(held) > 0 {
		t.Errorf("the plain job ran %v, the held one %v", ran, held)
	}
}

// A node that was reset under a job has lost its kernel: with ReturnToService=2 Slurm takes it back at once, and no step of
// that job may run there.
func TestResetNodeTakesNoStepOfItsJob(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.ReturnToService = 2 })
	id := s.Sbatch("alice", "held", "-N2", "--nodelist=n1,n2", "--kernel-profile=mitgcm")
	s.Wait(Limit, "the job's steps", func() bool { return len(s.Records("alice", id)) == 2 })
	before := s.Node("n2").BootID()
	s.Node("n2").Reset()
	s.Wait(Limit, "n2 to be back", func() bool {
		return s.Node("n2").BootID() != before && s.Node("n2").Kernel() == KernelNamed(StockName).Release
	})
	until, left, refused := time.Now().Add(holdLimit), false, false
	for time.Now().Before(until) && !left {
		if left = s.Job(id)["JobState"] != "RUNNING"; left {
			break
		}
		r := s.Try("alice", "timeout", "5", "srun", "--jobid="+id, "--overlap", "--immediate=3", "-N2", "-n2", "/emulated/record")
		refused = refused || r.Exit != 0
	}
	if !left && !refused {
		t.Error("the job runs on, and all its steps were launched")
	}
	for _, r := range s.Records("alice", id) {
		if r["release"] != KernelNamed("mitgcm").Release {
			t.Errorf("a step ran on another kernel: %v", r)
		}
	}
	s.Try("alice", "scancel", id)
	s.Settled(Limit)
}

// The broker is away for longer than a return takes: the node waits for it, and is home when it is back.
func TestBrokerAwayAtTheReturn(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	s.Wait(Limit, "the return to be armed", func() bool { return strings.Contains(s.NodeState("n1")["State"], "REBOOT_REQUESTED") })
	s.OK(s.Broker().Kill(s.Ctx))
	s.LetGo("alice", id)
	s.WaitJob(id, "COMPLETED")
	pause(s.Ctx, 30*time.Second)
	s.OK(s.Broker().Start(s.Ctx))
	s.RanOn("alice", id, "mitgcm", 1)
	s.Settled(Limit, "n1")
	plain := s.Sbatch("bob", "0", "-N1", "--nodelist=n1")
	s.WaitJob(plain, "COMPLETED")
	s.RanOn("bob", plain, "stock", 1)
}

// A job that asks for a boot and for no kernel (sbatch --reboot, for administrators) gets the machine's own.
func TestRebootForAJob(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	pause(s.Ctx, registered)
	out := s.Must("root", "env", "HOME=/home/alice", "sbatch", "--parsable", "--uid=alice", "--chdir=/home/alice", "--output=/dev/null", "-N1", "--nodelist=n1", "--reboot",
		"/emulated/job", "0")
	id := strings.TrimSpace(out)
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "stock", 1)
	if boots := s.BootsOf("n1"); !slices.Equal(boots, []string{"power on", "reboot"}) {
		t.Errorf("n1 booted by %v", boots)
	}
	s.Settled(Limit, "n1")
}

// scontrol reconfigure while a profile job runs: its node is home a minute later.
func TestReconfigureWhileRunning(t *testing.T) {
	t.Parallel()
	// Otherwise slurmctld, which counts boots in whole seconds, may consider a node crashed that it asks again.
	s := Start(t, func(o *Options) { o.ReturnToService = 2 })
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.WaitJob(id, "RUNNING")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	s.Must("root", "scontrol", "reconfigure")
	pause(s.Ctx, 3*time.Second) // its effects on nodes take a while
	s.LetGo("alice", id)
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 1)
	s.Settled(time.Minute)
}

// scontrol reconfigure while a node is on its way to a profile: the job runs, and
// all nodes are home a minute later.
func TestReconfigureInSwitch(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.BootTime = 3 * time.Second })
	id := s.Sbatch("alice", "8", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.Wait(Limit, "n1 in its switch", func() bool { return s.inSwitch("n1") })
	s.Must("root", "scontrol", "reconfigure")
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 1)
	s.Settled(time.Minute)
}
