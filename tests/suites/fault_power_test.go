// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Nodes lose their power, or are silent, in mid-switch.
func TestFaultPower(t *testing.T) {
	f := startFaults(t, func(o *lab.Options) {
		o.Broker = map[string]any{"switch": map[string]any{"load_limit": "60s", "agent_limit": "20s", "reset_grace": "20s", "reboot_timeout": "20s"}}
	})
	f.profile("flaky", "mitgcm", nil, "boot_timeout: 60s")
	f.profile("gone", "mitgcm", nil, "boot_timeout: 20s")
	f.on("lost-and-back-in-the-boot", func(f *faults) {
		at := f.logSize()
		id := f.ask("alice", "flaky", 0, "-N2")
		f.logged(at, `node=n1 .*to=booting desired=flaky`)
		f.powerCycle(f.Node(1))
		f.completed("alice", id, 2)
	})
	f.on("lost-and-back-while-loading", func(f *faults) {
		f.freeze(f.Node(2))
		at := f.logSize()
		id := f.ask("alice", "mitgcm", 0, "-N2")
		f.logged(at, `node=n2 .*to=loading desired=mitgcm`)
		f.powerCycle(f.Node(2))
		f.completed("alice", id, 2)
	})
	f.on("one-lost-for-good-and-one-silent", lostAndSilent)
}

func (f *faults) powerCycle(n lab.Node) {
	f.t.Helper()
	f.ok(n.PowerOff(f.ctx))
	f.ok(n.PowerOn(f.ctx))
}

func (f *faults) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// lostAndSilent: one node loses its power after its kexec, and the reset fails, too; the other one hangs before it has
// loaded anything (F2). Both are drained, and their jobs run after the repair.
func lostAndSilent(f *faults) {
	f.ok(f.Node(2).Pause(f.ctx))
	at := f.logSize()
	lost := f.ask("alice", "gone", 0, "-N1", "--nodelist=n1")
	silent := f.ask("bob", "mitgcm", 0, "-N1", "--nodelist=n2")
	f.logged(at, `node=n1 .*to=booting desired=gone`)
	f.ok(f.Node(1).PowerOff(f.ctx))
	f.drained("n1", "gone@1", "no sign of life")
	f.drained("n2", "mitgcm@1")
	f.never("alice", lost)
	f.never("bob", silent)
	f.ok(f.Node(1).PowerOn(f.ctx))
	f.ok(f.Node(2).Resume(f.ctx))
	f.resume("n1")
	f.resume("n2")
	f.completed("alice", lost, 1)
	f.completed("bob", silent, 1)
}

// resume resumes a repaired node as an administrator does, once it is up on stock.
func (f *faults) resume(node string) {
	f.t.Helper()
	f.wait(settleLimit, node+" to be proven on stock", func() bool {
		for _, n := range f.nodes() {
			if n.Name == node {
				return n.Connected && n.Attested && n.RunningProfile == "stock"
			}
		}
		return false
	})
	f.must("root", "scontrol", "update", "nodename="+node, "state=resume")
}
