// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// Administrators' commands on nodes that return to stock.
func TestReturning(t *testing.T) {
	rows(t, func(o *emulated.Options) { o.BootTime, o.ResumeTimeout = 2*time.Second, 3*time.Minute },
		row{"drain", func(c cluster) { c.setOnTheReturn("drain") }},
		row{"down", func(c cluster) { c.setOnTheReturn("down") }},
		row{"fail", func(c cluster) { c.setOnTheReturn("fail") }},
		row{"reconfigure", reconfigureOnTheReturn},
		row{"loads of stock fail", stockDoesNotLoad},
	)
}

// onTheReturn runs a job on a node and stops the node in its boot back to stock; goOn lets it boot.
func (c cluster) onTheReturn(node string) (goOn func()) {
	c.T.Helper()
	id := c.held("alice", 1, "--nodelist="+node, profile)
	c.LetGo("alice", id)
	c.Wait(limit, node+" to return", func() bool { return c.on(node, "stock") }, func() string { return c.NodeLine(node) })
	c.OK(c.Node(node).Pause(c.Ctx))
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	// The node need not wait for Slurm's own word.
	c.Wait(limit, "Slurm to wait for the boot", func() bool { return strings.Contains(c.NodeState(node)["State"], "REBOOT_ISSUED") },
		func() string { return c.NodeLine(node) })
	return func() {
		c.T.Helper()
		c.OK(c.Node(node).Resume(c.Ctx))
	}
}

// setOnTheReturn checks that a node comes back out of service, for the administrator's reason. Slurm itself sets a node down
// for a boot that it issues, so down cannot be told from drain there.
func (c cluster) setOnTheReturn(state string) {
	c.T.Helper()
	goOn := c.onTheReturn("n1")
	c.Must("root", "scontrol", "update", "nodename=n1", "state="+state, "reason=bad DIMM")
	goOn()
	seen := map[string]string{"drain": "IDLE+DRAIN", "down": "DRAIN", "fail": "FAIL"}
	c.givenUp("n1", seen[state])
}

// scontrol reconfigure makes slurmctld forget what it was told of a boot.
func reconfigureOnTheReturn(c cluster) {
	goOn := c.onTheReturn("n1")
	c.Must("root", "scontrol", "reconfigure")
	goOn()
	c.home()
	c.plain("n1")
}

// A node has no space for stock's image twice in a row: its return is tried again, without a reset and without an
// administrator.
func stockDoesNotLoad(c cluster) {
	before := len(c.BootsOf("n1"))
	id := c.held("alice", 1, "--nodelist=n1", profile)
	c.OK(c.Node("n1").FailNextLoad(emulated.StockName))
	c.LetGo("alice", id)
	c.Wait(limit, "the first load to fail", func() bool { return !c.Node("n1").FailsNextLoad() }, func() string { return c.NodeLine("n1") })
	c.OK(c.Node("n1").FailNextLoad(emulated.StockName))
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.home()
	c.plain("n1")
	if boots := strings.Join(c.BootsOf("n1")[before:], " "); boots != "kexec kexec" || c.Node("n1").FailsNextLoad() {
		c.T.Errorf("n1 booted by %s; a load is still to fail: %v", boots, c.Node("n1").FailsNextLoad())
	}
}
