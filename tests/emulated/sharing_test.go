// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// A user shrinks a running job on two nodes to one. The released node returns to stock and takes the next plain job,
// while the first job continues.
func TestShrunkJob(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	id := s.Sbatch("alice", "held", "-N2", "--nodelist=n1,n2", "--kernel-profile=mitgcm")
	s.WaitJob(id, "RUNNING")
	s.Wait(Limit, "the job's steps", func() bool { return len(s.Records("alice", id)) == 2 })
	s.Must("alice", "scontrol", "update", "jobid="+id, "NumNodes=1")
	s.Wait(Limit, "n2 to leave the job", func() bool { return s.Job(id)["NodeList"] == "n1" })
	plain := s.Sbatch("bob", "0", "-N1", "--nodelist=n2")
	s.Wait(time.Minute, "a plain job on the released node", func() bool { return s.Job(plain)["JobState"] == "COMPLETED" },
		func() string { return s.State(plain) + ", " + s.NodeLine("n2") })
	s.RanOn("bob", plain, "stock", 1)
	s.Settled(Limit, "n2")
	if state := s.Job(id)["JobState"]; state != "RUNNING" {
		t.Errorf("the shrunk job is %s", state)
	}
	s.Must("alice", "scancel", id)
	s.Settled(Limit)
}

// reservationName is that of a line of scontrol.
var reservationName = regexp.MustCompile(`ReservationName=(\S+)`)

// While the broker keeps a node in a reservation for a waiting job with the same
// kernel, that job's owner cancels it and submits a plain job to the reservation.
// It does not get in, and the node returns to stock promptly.
func TestKeptReservation(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	waiting, kept := s.keptFor(5)
	s.Must("alice", "scancel", waiting)
	r := s.Try("alice", "sbatch", "--parsable", "--output=%j.out", "-N1", "--reservation="+kept, "/emulated/job", "0")
	if r.Exit == 0 || !strings.Contains(r.Stderr, "keep nodes for one job") {
		t.Errorf("a plain job asks for the reservation: exit %d, %s", r.Exit, r.Stderr)
	}
	s.Wait(15*time.Second, "the reservation's end", func() bool { return s.reservation() == "" })
	s.Settled(30*time.Second, "n1")
	next := s.Sbatch("bob", "0", "-N1", "--nodelist=n1")
	s.WaitJob(next, "COMPLETED")
	s.RanOn("bob", next, "stock", 1)
}

// reservation is the name of the existing reservation.
func (s *Trial) reservation() string {
	found := reservationName.FindStringSubmatch(s.Try("root", "scontrol", "--oneliner", "show", "reservation").Stdout)
	if found == nil {
		return ""
	}
	return found[1]
}

// keptFor makes the broker keep n1 for a pending job, and returns that job and the reservation. It retries, since on a
// loaded machine the epilog may get its answer late, or the job may have started already.
func (s *Trial) keptFor(tries int) (waiting, kept string) {
	s.T.Helper()
	for range tries {
		first := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
		s.WaitJob(first, "RUNNING")
		waiting = s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
		s.LetGo("alice", first)
		s.Wait(Limit, "the reservation, or the second job's begin", func() bool {
			kept = s.reservation()
			return kept != "" || s.State(waiting) == "RUNNING None"
		})
		if kept != "" {
			return waiting, kept
		}
		s.LetGo("alice", waiting)
		s.WaitJob(waiting, "COMPLETED")
		s.Settled(Limit, "n1")
	}
	s.T.Fatalf("the broker kept the node in none of %d tries", tries)
	return "", ""
}

// ownPlugin is a plugin loaded by a user's own plugstack.conf: at submit it sets one variable of the job, which requests
// what the site's plugin would refuse.
const ownPlugin = `#include <stdlib.h>
#include <slurm/spank.h>
SPANK_PLUGIN(setenv, 1)
int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
	const char *name = getenv("SETENV_NAME"), *value = getenv("SETENV_VALUE");
	(void)argc; (void)argv;
	if (name && value && spank_context() == S_CTX_ALLOCATOR)
		spank_job_control_setenv(spank, name, value, 1);
	return 0;
}
`

// ownPlugstack gives a user a slurm.conf whose plugstack holds only ownPlugin.
func (s *Trial) ownPlugstack(user string) {
	s.T.Helper()
	system, err := slurmroot.Find(s.Ctx, s.Options().Repo, s.Options().Slurm)
	s.OK(err)
	dir := s.T.TempDir()
	source, object := filepath.Join(dir, "setenv.c"), filepath.Join(dir, "setenv.so")
	s.OK(os.WriteFile(source, []byte(ownPlugin), 0o644))
	out, err := exec.CommandContext(s.Ctx, "cc", "-shared", "-fPIC", "-I"+system.Path("usr/include"), "-o", object, source).CombinedOutput()
	if err != nil {
		s.T.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(object)
	s.OK(err)
	s.File(user, "setenv.so", string(text))
	s.File(user, "plugstack.conf", "optional /home/"+user+"/setenv.so\n")
	conf, err := os.ReadFile(s.Path("etc/slurm/slurm.conf"))
	s.OK(err)
	s.File(user, "slurm.conf", strings.ReplaceAll(string(conf), "/etc/slurm/plugstack.conf", "/home/"+user+"/plugstack.conf"))
	s.File(user, "cgroup.conf", slurmroot.CgroupsUnused(s.Options().Slurm))
}

// A user's own plugstack sets only Slurm's own variable for the option, to a missing profile, for one job on all nodes.
// The job is refused or held, no node is drained, and a plain job runs on all nodes.
func TestOptionVariableAlone(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.ResumeTimeout = 30 * time.Second })
	s.ownPlugstack("bob")
	r := s.Try("bob", "env", "SLURM_CONF=/home/bob/slurm.conf", "SETENV_NAME=_SLURM_SPANK_OPTION_kernel_profile_kernel_profile",
		"SETENV_VALUE=there-is-no-such-profile", "sbatch", "--parsable", "--output=%j.out", "-N3", "/emulated/job", "0")
	id := strings.TrimSpace(r.Stdout)
	if r.Exit != 0 && !strings.Contains(r.Stderr, "is set without KERNEL_PROFILE") {
		t.Errorf("sbatch: exit %d, %s", r.Exit, r.Stderr)
	}
	if r.Exit == 0 {
		s.Wait(time.Minute, "job "+id+" to be held", func() bool { return strings.HasPrefix(s.State(id), "PENDING JobHeld") },
			func() string { return s.State(id) + ", " + s.NodeLine("n1") + ", restarts " + s.Job(id)["Restarts"] })
	}
	s.Never(5*time.Second, "a node that is drained or down", func() bool {
		for _, n := range s.Nodes() {
			if state := s.NodeState(n.Name())["State"]; strings.Contains(state, "DRAIN") || strings.Contains(state, "DOWN") {
				return true
			}
		}
		return false
	})
	plain := s.Sbatch("alice", "0", "-N3")
	s.WaitJob(plain, "COMPLETED")
	s.RanOn("alice", plain, "stock", 3)
}

// Two nodes are powered down by Slurm's power saving. A plain job and a profile job that need them both run: power on
// takes longer than the broker waits for an agent.
func TestPowerSaving(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.PowerSaving = 25 * time.Second
		o.ResumeTimeout = 120 * time.Second
		o.Broker = map[string]any{"switch": map[string]any{"agent_limit": "15s"}}
		// From 26.05 on a job with a profile has its nodes' power switched on so.
		o.Client = map[string]any{"reboot_program": "/emulated/resume"}
	})
	s.Must("root", "scontrol", "update", "nodename=n1,n2", "state=power_down")
	s.Wait(Limit, "n1 and n2 powered down", func() bool {
		return strings.Contains(s.NodeState("n1")["State"], "POWERED_DOWN") && strings.Contains(s.NodeState("n2")["State"], "POWERED_DOWN")
	}, func() string { return s.NodeLine("n1") + ", " + s.NodeLine("n2") })
	profile := s.Sbatch("alice", "4", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	plain := s.Sbatch("bob", "0", "-N1", "--nodelist=n2")
	s.Wait(Limit, "the plain job", func() bool { return s.Job(plain)["JobState"] == "COMPLETED" },
		func() string { return s.State(plain) + ", " + s.NodeLine("n2") })
	s.RanOn("bob", plain, "stock", 1)
	s.Wait(Limit, "the profile job", func() bool { return s.Job(profile)["JobState"] == "COMPLETED" },
		func() string { return s.State(profile) + ", " + s.NodeLine("n1") })
	s.RanOn("alice", profile, "mitgcm", 1)
	s.Settled(Limit, "n1")
}

// An administrator powers down a node whose return is armed, and slurmctld forgets
// that when it restarts: after the job the node is in service, with no drain that
// nobody gave.
func TestPowerDownForgotten(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.PowerSaving = 2 * time.Second })
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.WaitJob(id, "RUNNING")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	s.Wait(Limit, "n1 armed", func() bool { return strings.Contains(s.NodeState("n1")["Reason"], "kprof:") },
		func() string { return s.NodeLine("n1") })
	s.Must("root", "scontrol", "update", "nodename=n1", "state=power_down")
	s.OK(s.Slurmctld().Stop(s.Ctx))
	s.OK(s.Slurmctld().Start(s.Ctx))
	s.LetGo("alice", id)
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 1)
	s.Settled(Limit, "n1")
}

// An administrator powers down a node in the switch, after its return was armed: the
// job runs, and then Slurm takes the node's power.
func TestPowerDownInTheSwitch(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.PowerSaving, o.BootTime = 2*time.Second, 3*time.Second
		o.Client = map[string]any{"reboot_program": "/emulated/resume"}
	})
	id := s.Sbatch("alice", "0", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.Wait(Limit, "n1 in its switch", func() bool { return s.inSwitch("n1") })
	s.Must("root", "scontrol", "update", "nodename=n1", "state=power_down")
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 1)
	s.Wait(Limit, "n1 without power", func() bool { return strings.Contains(s.NodeState("n1")["State"], "POWERED_DOWN") },
		func() string { return s.NodeLine("n1") })
}
