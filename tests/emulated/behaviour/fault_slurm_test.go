// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// Agents, slurmctld, its hooks, the job or a node end at a bad moment.
func TestFaultSlurm(t *testing.T) {
	t.Parallel()
	f := startFaults(t, nil)
	f.on("agent-killed", agentKilled)
	f.on("slurmctld-restarted-while-nodes-load", func(f *faults) {
		slurmctldRestarted(f, syscall.SIGTERM, `node=n2 .*to=loading desired=mitgcm`)
	})
	f.on("slurmctld-restarted-and-nodes-answer-before-they-boot", func(f *faults) {
		f.freeze()
		at := f.logSize()
		id := f.ask("bob", "mitgcm", 0, "-N2")
		f.logged(at, `"allocation changed" .*to=switching`)
		f.OK(f.Slurmctld().Restart(f.ctx, syscall.SIGTERM))
		if !slurmroot.RemembersJobBoots(f.Options().Slurm) {
			f.logged(at, `"allocation changed" .*to=failed .*an earlier start of slurmd`)
		}
		f.thaw()
		f.completed("bob", id, 2)
	})
	f.on("slurmctld-killed-while-nodes-boot", func(f *faults) {
		slurmctldRestarted(f, syscall.SIGKILL, `node=n2 .*to=booting desired=mitgcm`)
	})
	f.on("prolog-killed-on-stock", prologKilledOnStock)
	f.on("prolog-killed-while-nodes-boot", func(f *faults) {
		at := f.logSize()
		id := f.ask("alice", "mitgcm", 0, "-N2")
		f.logged(at, `node=n1 .*to=booting desired=mitgcm`)
		f.killProlog()
		f.completed("alice", id, 2)
	})
	f.on("prolog-hung-while-its-job-is-held", prologHung)
	f.on("cancelled-before-the-boot", func(f *faults) {
		f.freeze()
		at := f.logSize()
		id := f.ask("alice", "mitgcm", 0, "-N2")
		f.logged(at, `"allocation changed" .*to=switching`)
		f.must("alice", "scancel", id)
		f.waitJob(id, "CANCELLED")
		f.thaw()
		f.never("alice", id)
	})
	f.on("cancelled-in-the-boot", func(f *faults) {
		at := f.logSize()
		id := f.ask("alice", "mitgcm", 0, "-N2")
		f.logged(at, `node=n1 .*to=booting desired=mitgcm`)
		f.must("alice", "scancel", id)
		f.waitJob(id, "CANCELLED")
		f.never("alice", id)
	})
	f.on("node-crashed-under-the-job", nodeCrashed)
}

// agentKilled kills agents while they load, when the new kernel is up, while
// the job runs and while they load stock.
func agentKilled(f *faults) {
	at := f.logSize()
	id := f.askHeld("alice", "mitgcm", "-N2")
	f.logged(at, `node=n1 .*to=loading desired=mitgcm`)
	f.killAgents(f.Node("n1"))
	f.wait(switchLimit, "mitgcm's kernel on n2", func() bool { return f.Node("n2").Kernel() == f.kernels["mitgcm"].release })
	f.wait(switchLimit, "n2's agent", func() bool {
		r, err := f.Node("n2").Exec(f.ctx, "test", "-e", "/run/agent.pid")
		return err == nil && r.Exit == 0
	})
	f.killAgents(f.Node("n2"))
	f.waitJob(id, "RUNNING")
	for _, n := range f.Nodes() { // here nothing boots
		f.wait(switchLimit, n.Name()+"'s agent to be killed", func() bool { return n.KillAgent(f.ctx) == nil })
	}
	f.letGo("alice", id)
	f.logged(at, `node=n2 .*to=loading desired=stock`)
	f.killAgents(f.Node("n2"))
	f.completed("alice", id, 2)
}

// killAgents kills agents like crashes; an agent that has just ended with its kernel, or is not restarted yet, counts as
// killed. A booting node does not answer, and the switch continues without this test.
func (f *faults) killAgents(nodes ...*emulated.Node) {
	f.t.Helper()
	for _, n := range nodes {
		if err := n.KillAgent(f.ctx); err != nil {
			f.t.Logf("agent of %s not killed: %v", n.Name(), err)
		}
	}
}

// slurmctldRestarted restarts slurmctld when the broker's log says pattern.
func slurmctldRestarted(f *faults, signal syscall.Signal, pattern string) {
	at := f.logSize()
	id := f.ask("bob", "mitgcm", 0, "-N2")
	f.logged(at, pattern)
	if signal == syscall.SIGKILL {
		f.saved()
	}
	f.OK(f.Slurmctld().Restart(f.ctx, signal))
	if signal == syscall.SIGKILL {
		f.OK(f.Node("n2").Resume(f.ctx))
	}
	f.completed("bob", id, 2)
}

// saved keeps n2 in its boot until slurmctld has saved its jobs: a killed one forgets those of the last seconds, with or
// without the product. There is something to save, since n1 gets ready meanwhile.
func (f *faults) saved() {
	f.t.Helper()
	f.OK(f.Node("n2").Pause(f.ctx))
	since := time.Now()
	state := f.Path("var/lib/slurm/slurmctld/job_state")
	f.wait(switchLimit, "slurmctld to save its jobs", func() bool {
		info, err := os.Stat(state)
		return err == nil && info.ModTime().After(since)
	})
}

// killProlog kills PrologSlurmctld, which Slurm counts as its success.
func (f *faults) killProlog() {
	f.t.Helper()
	f.signalProlog(syscall.SIGKILL)
}

// prologKilledOnStock lets Slurm start a job on nodes that have not started to switch, with broker and agents hung: only
// the gate prevents it.
func prologKilledOnStock(f *faults) {
	f.freeze()
	at := f.logSize()
	id := f.ask("alice", "mitgcm", 0, "-N2")
	if !slurmroot.RemembersJobBoots(f.Options().Slurm) {
		// Once the return is armed, Slurm boots and resumes nodes that the gate drains.
		f.logged(at, `"action done" action="arm return"`)
	} else {
		// A node that boots for a job cannot be armed; the broker undoes the drain.
		f.logged(at, `"action done" action="comment job"`)
	}
	f.OK(f.Broker().Signal(f.ctx, syscall.SIGSTOP))
	f.killProlog()
	// Slurm still waits for the boot, and a restart of slurmd looks like one.
	f.onNodes(`read -r pid </run/slurmd.pid && kill "$pid"
while [ -e "/proc/$pid" ]; do sleep 0.1; done
sleep 1.1
exec slurmd -b`)
	f.wait(switchLimit, "the gate to refuse job "+id, func() bool {
		job := f.job(id)
		return job["JobState"] == "PENDING" && job["Restarts"] != "0" || job["JobState"] == "COMPLETED"
	})
	f.never("alice", id)
	for _, n := range f.Nodes() {
		// The other node's gate may be later than slurmctld's reaction to the first.
		f.wait(time.Minute, "the gate of "+n.Name()+" to refuse job "+id, func() bool {
			said, err := os.ReadFile(n.Log("slurmd.log"))
			return err == nil && strings.Contains(string(said), "kernel-broker: gate: job "+id+" refused")
		})
	}
	f.OK(f.Broker().Signal(f.ctx, syscall.SIGCONT))
	f.thaw()
	f.completed("alice", id, 2)
}

// prologHung: slurmctld processes a job that the broker requeued held while its PrologSlurmctld is still running. It
// then forgets who held the job and assumes an administrator, so that no user may release it.
func prologHung(f *faults) {
	f.profile("withdrawn", "mitgcm", "loglevel=1")
	f.freeze()
	at := f.logSize()
	id := f.ask("alice", "withdrawn", 0, "-N2")
	f.logged(at, `"allocation changed" .*to=switching`)
	f.signalProlog(syscall.SIGSTOP)
	f.must("root", "kernelctl", "profile", "retire", "withdrawn", "--reason", "its time is over")
	f.wait(switchLimit, "slurmctld to look at job "+id+" while its prolog hangs", func() bool {
		f.cancelled("bob", f.ask("bob", "stock", 0, "--hold"))
		return f.job(id)["Reason"] == "Cleaning"
	})
	f.signalProlog(syscall.SIGCONT)
	f.thaw()
	f.wait(switchLimit, "the prolog's end", func() bool { return len(f.prologs()) == 0 })
	f.isHeld("alice", id, "withdrawn@1", "its time is over")
	f.wait(switchLimit, "job "+id+" to be held for its user", func() bool { return f.job(id)["Reason"] == "JobHeldUser" })
	f.must("alice", "scontrol", "release", id)
	f.isHeld("alice", id, "withdrawn@1", "its time is over")
	f.cancelled("alice", id)
}

// never checks that a job has not run at all.
func (f *faults) never(user, id string) {
	f.t.Helper()
	if p := f.probes(user, id); len(p) > 0 {
		f.t.Errorf("job %s ran: %v", id, p)
	}
}

// nodeCrashed resets a node under its job (F8): Slurm must see the crash, and
// the job, requeued, runs once more.
func nodeCrashed(f *faults) {
	id := f.askHeld("alice", "mitgcm", "-N2")
	f.waitJob(id, "RUNNING")
	f.wait(switchLimit, "the job's tasks", func() bool { return len(f.probes("alice", id)) == 3 })
	// slurmctld counts in whole seconds: it misses a boot in the second of the node's last answer, and these nodes boot
	// at once.
	time.Sleep(2 * time.Second)
	f.Node("n1").Reset()
	restarts := ""
	f.wait(switchLimit, "Slurm to see the crash", func() bool {
		job := f.job(id)
		f.hurry(job)
		// Slurm may mistake the nodes' return for the awaited boot: then the job, not yet started, is restarted once
		// more.
		restarts = job["Restarts"]
		return restarts != "" && restarts != "0" && job["JobState"] == "RUNNING"
	})
	f.wait(switchLimit, "the job's tasks once more", func() bool {
		p := f.probes("alice", id)
		again := 0
		for _, r := range p {
			if r["restart"] == restarts {
				again++
			}
		}
		return len(p) == 6 && again == 3
	})
	f.must("alice", "scancel", id)
	f.waitJob(id, "CANCELLED")
}
