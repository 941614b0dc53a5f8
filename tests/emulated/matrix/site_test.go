// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"os"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// A node that an administrator set to fail or down stays out of service after the return.
func TestFailingNode(t *testing.T) {
	rows(t, nil, row{"while a job runs", func(c cluster) {
		id := c.held("alice", 1, "--nodelist=n1", profile)
		c.Must("root", "scontrol", "update", "nodename=n1", "state=fail", "reason=bad DIMM")
		c.LetGo("alice", id)
		c.completed(id)
		c.ran("alice", id, "mitgcm", 1)
		c.givenUp("n1", "FAIL")
	}}, row{"in the switch", func(c cluster) { c.setInTheSwitch("fail", "FAIL") }})
}

// setInTheSwitch has an administrator set a node's state while it boots for a job, and checks that the node is out of service
// in the state that is seen of it. The job runs on its kernel, or waits.
func (c cluster) setInTheSwitch(state, seen string) {
	c.T.Helper()
	id, goOn := c.inSwitch("n1")
	c.Must("root", "scontrol", "update", "nodename=n1", "state="+state, "reason=bad DIMM")
	goOn()
	c.Wait(limit, "the job to end or to wait", func() bool {
		state := c.Job(id)["JobState"]
		return state == "COMPLETED" || state == "PENDING"
	}, func() string { return c.State(id) })
	c.Try("alice", "scancel", id)
	c.givenUp("n1", seen)
	for _, r := range c.Records("alice", id) {
		c.CheckRecord(r, emulated.KernelNamed("mitgcm"), "mitgcm")
	}
}

// givenUp checks that a node is on stock, in the administrator's state and with the reason, that it takes no job, and
// that resume returns it to service.
func (c cluster) givenUp(node, state string) {
	c.T.Helper()
	seen := func() bool {
		n := c.NodeState(node)
		return c.on(node, "stock") && strings.Contains(n["State"], state) && strings.Contains(n["Reason"], "bad DIMM") &&
			!strings.Contains(n["State"], "REBOOT")
	}
	c.Wait(limit, node+" on stock and given up", seen, func() string { return c.NodeLine(node) })
	id := c.Sbatch("bob", "0", "-N1", "--nodelist="+node)
	c.plain("n2") // so the scheduler has run for both
	c.plain("n3")
	if job := c.Job(id)["JobState"]; job != "PENDING" || !seen() {
		c.T.Errorf("a job is %s; %s", job, c.NodeLine(node))
	}
	c.Must("root", "scontrol", "update", "nodename="+node, "state=resume")
	c.completed(id)
	c.ran("bob", id, "stock", 1)
}

const healthCheck = `#!/bin/sh
[ ! -e /machine/sick ] || scontrol update nodename="$(hostname)" state=drain reason="nhc: bad DIMM"
`

// A site's health check drains the node while a job runs. The drain stays.
func TestHealthCheck(t *testing.T) {
	t.Parallel()
	c := cluster{emulated.Start(t, func(o *emulated.Options) {
		o.Set = map[string]string{
			"HealthCheckProgram": "/home/bob/check", "HealthCheckInterval": "5", "HealthCheckNodeState": "ANY",
		}
	})}
	c.File("bob", "check", healthCheck)
	id := c.held("alice", 1, "--nodelist=n1", profile)
	c.OK(os.WriteFile(c.Path("nodes/n1/sick"), nil, 0o644))
	c.Wait(limit, "the check's drain", func() bool { return strings.Contains(c.NodeState("n1")["Reason"], "nhc: bad DIMM") },
		func() string { return c.NodeLine("n1") })
	c.OK(os.Remove(c.Path("nodes/n1/sick")))
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.givenUp("n1", "IDLE+DRAIN")
	c.home()
}

// An administrator removes an idle node from slurm.conf, and adds it again, while a job runs with a profile on another
// one.
func TestNodeRemoved(t *testing.T) {
	t.Parallel()
	c := cluster{emulated.Start(t, nil)}
	conf := c.Path("etc/slurm/slurm.conf")
	whole, err := os.ReadFile(conf)
	c.OK(err)
	id := c.held("alice", 1, "--nodelist=n1", profile)
	var less strings.Builder
	for line := range strings.Lines(string(whole)) {
		if !strings.HasPrefix(line, "NodeName=n3 ") {
			less.WriteString(line)
		}
	}
	c.configure(less.String())
	if out := c.Try("root", "scontrol", "show", "node", "n3"); out.Exit == 0 {
		c.T.Errorf("n3 is still there: %s", out.Stdout)
	}
	c.LetGo("alice", id)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.Settled(limit, "n1", "n2")
	c.configure(string(whole))
	c.home()
	last := c.Sbatch("alice", "0", "-N3", profile)
	c.completed(last)
	c.ran("alice", last, "mitgcm", 3)
	c.home()
}

// configure replaces slurm.conf and restarts slurmctld, as Slurm requires for added and removed nodes, and reconfigures
// all daemons.
func (c cluster) configure(text string) {
	c.T.Helper()
	c.OK(os.WriteFile(c.Path("etc/slurm/slurm.conf"), []byte(text), 0o644))
	c.OK(c.Slurmctld().Stop(c.Ctx))
	c.OK(c.Slurmctld().Start(c.Ctx))
}
