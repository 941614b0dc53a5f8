// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// The fault injection on nodes works.
func TestNodes(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.WithoutAgent = []string{"n3"} })
	n := s.Node("n1")

	before := n.BootID()
	s.OK(n.Pause(s.Ctx))
	for _, pid := range n.processes() {
		if !n.stands(pid) {
			t.Errorf("process %s runs on a node that is paused", pid)
		}
	}
	s.OK(n.Resume(s.Ctx))
	s.OK(n.StopAgent(s.Ctx))
	s.Wait(Limit, "the agent's end", func() bool {
		r, err := n.Exec(s.Ctx, "test", "-e", "/run/agent.pid")
		return err == nil && r.Exit != 0
	})
	s.OK(n.StartAgent())
	if got := n.BootID(); got != before {
		t.Errorf("the node booted: %s, before %s", got, before)
	}

	n.PowerOff()
	s.Wait(Limit, "the node's end", func() bool { return len(n.processes()) == 0 })
	n.PowerOn()
	s.Wait(Limit, "the next boot", func() bool { return n.BootID() != before && len(n.processes()) > 0 })
	r, err := n.Exec(s.Ctx, "cat", "/proc/uptime")
	s.OK(err)
	if up, err := strconv.ParseFloat(strings.Fields(r.Stdout + " -")[0], 64); err != nil || up > Limit.Seconds() {
		t.Errorf("its uptime is %q", r.Stdout)
	}

	if agents := s.Try("root", "kernelctl", "node", "show", "n3"); agents.Exit == 0 && strings.Contains(agents.Stdout, "stock@1") {
		t.Errorf("n3 has an agent:\n%s", agents.Stdout)
	}
}

// A load that fails, fails once.
func TestFailNextLoad(t *testing.T) {
	t.Parallel()
	// Otherwise slurmctld, which counts boots in whole seconds, may consider the node crashed when it is resumed.
	s := Start(t, func(o *Options) { o.Nodes, o.ReturnToService = 1, 2 })
	s.OK(s.Node("n1").FailNextLoad("mitgcm"))
	id := s.Sbatch("alice", "0", "-N1", "--kernel-profile=mitgcm")
	s.Wait(Limit, "the failure", func() bool { return !s.Node("n1").FailsNextLoad() })
	// The broker handles the node and its job; an administrator repairs the node, and the job runs.
	s.Wait(Limit, "the job's end", func() bool {
		if strings.Contains(s.NodeState("n1")["State"], "DRAIN") && s.Job(id)["JobState"] == "PENDING" {
			s.Try("root", "scontrol", "update", "nodename=n1", "state=resume")
		}
		s.Hurry(id)
		return s.Job(id)["JobState"] == "COMPLETED"
	}, func() string { return s.State(id) + ", " + s.NodeLine("n1") })
	s.RanOn("alice", id, "mitgcm", 1)
}

// A job that its user cancels while its switch fails stays cancelled: here just after the hook asked whether it exists.
func TestCancelWhileASwitchFails(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.Nodes, o.ReturnToService = 1, 2
		o.Client = map[string]any{"scontrol": "/emulated/between/scontrol"}
	})
	s.OK(os.Mkdir(s.Path("emulated/between"), 0o755))
	s.OK(os.Symlink("/usr/bin/scontrol", s.Path("emulated/between/scontrol")))
	s.OK(write(s.Path("emulated/between/squeue"), `#!/bin/sh
/usr/bin/squeue "$@" || exit
case "$*" in *--Format=*State:*) ;; *) exit ;; esac # another question than whether the job exists
for a; do case $a in --jobs=*) scancel "${a#--jobs=}" ;; esac; done
`, 0o755))
	s.OK(s.Node("n1").FailNextLoad("mitgcm"))
	id := s.Sbatch("alice", "0", "-N1", "--kernel-profile=mitgcm")
	s.WaitJob(id, "CANCELLED")
	s.Wait(Limit, "the node's drain", func() bool { return strings.Contains(s.NodeState("n1")["State"], "DRAIN") })
	s.Never(5*time.Second, "the cancelled job is in the queue", func() bool { return s.Job(id)["JobState"] != "CANCELLED" })
}

// A cluster ends with the process that brought it up, however that ends.
func TestEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("EMULATED_TEST_OWNER_OF"); dir != "" {
		o, err := Defaults()
		if err == nil {
			o.Dir, o.Nodes = dir, 1
			_, err = Up(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // until it is killed
	}
	mode, err := lab.DetectMode()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "c")
	owner := exec.Command(os.Args[0], "-test.run=^TestEndsWithItsOwner$")
	owner.Env = append(os.Environ(), "EMULATED_TEST_OWNER_OF="+dir)
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{options: Options{Dir: dir}, mode: mode}
	defer func() {
		if err := c.remove(t.Context(), false); err != nil {
			t.Error(err)
		}
	}()
	err = c.wait(t.Context(), Limit, "an agent's log", func() (bool, error) {
		_, err := os.Stat(filepath.Join(dir, "root/nodes/n1/log/agent.log"))
		return err == nil, nil
	})
	pid, _ := os.ReadFile(filepath.Join(dir, "holder.pid"))
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // which reports the kill
	if err != nil {
		t.Fatal(err)
	}
	err = c.wait(t.Context(), Limit, "the cluster's end", func() (bool, error) {
		_, err := os.Stat(filepath.Join("/proc", strings.TrimSpace(string(pid))))
		return os.IsNotExist(err), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
