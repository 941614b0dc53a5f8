// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// A broker that is killed at any point of a switch carries on where it was.
func TestFaultBroker(t *testing.T) {
	f := startFaults(t, nil)
	f.on("killed-accepted-booting-running", func(f *faults) {
		at := f.logSize()
		id := f.askHeld("alice", "mitgcm", "-N2")
		at = f.crashBroker(at, `"allocation accepted" job=`+id)
		f.crashBroker(at, `"node changed" .*to=booting`)
		f.waitJob(id, "RUNNING")
		f.killBroker()
		f.letGo("alice", id)
		f.waitJob(id, "COMPLETED", "COMPLETING")
		f.startBroker()
		f.completed("alice", id, 2)
	})
	f.on("killed-loading-ready-returning", func(f *faults) {
		at := f.logSize()
		id := f.ask("alice", "mitgcm", 0, "-N2")
		at = f.crashBroker(at, `"node changed" .*to=loading desired=mitgcm`)
		at = f.crashBroker(at, `"allocation changed" .*to=ready`)
		at = f.crashBroker(at, `"node changed" .*to=loading desired=stock`)
		f.crashBroker(at, `"node changed" .*to=booting desired=stock`)
		f.completed("alice", id, 2)
	})
	f.on("away-while-the-nodes-boot", func(f *faults) {
		id := f.ask("bob", "mitgcm", 0, "-N2")
		// A broker killed before the last report would find both nodes unchanged: that is another of these cases.
		f.executing("mitgcm", f.Nodes()...)
		f.killBroker()
		f.upOn("mitgcm", f.Nodes()...)
		f.startBroker()
		f.completed("bob", id, 2)
	})
	f.on("down-at-submit", brokerDown)
}

// executing waits until a kernel's first output on each node's console.
func (f *faults) executing(profile string, nodes ...lab.Node) {
	f.t.Helper()
	begin := "Linux version " + f.kernels[profile].release + " "
	said := func(n lab.Node) int {
		text, err := os.ReadFile(n.Console())
		if err != nil {
			f.t.Fatal(err)
		}
		return strings.Count(string(text), begin)
	}
	before := map[string]int{}
	for _, n := range nodes {
		before[n.Name()] = said(n)
	}
	for _, n := range nodes {
		f.wait(switchLimit, "kernel "+profile+" to begin on "+n.Name(), func() bool { return said(n) > before[n.Name()] })
	}
}

// tryLimit is the timeout of one command on a node that may be booting, in which case it never answers.
const tryLimit = 3 * time.Second

// upOn waits until the nodes run a kernel, with or without the broker.
func (f *faults) upOn(profile string, nodes ...lab.Node) {
	f.t.Helper()
	k := f.kernels[profile]
	for _, n := range nodes {
		f.wait(switchLimit, "kernel "+k.release+" on "+n.Name(), func() bool {
			ctx, cancel := context.WithTimeout(f.ctx, tryLimit)
			defer cancel()
			r, err := n.Exec(ctx, "uname", "-r")
			return err == nil && r.Exit == 0 && r.Stdout == k.release+"\n"
		})
	}
}

// F6: without a broker a profile's job is requeued and finally held with the reason; plain jobs continue; after a
// release it runs when the broker is back.
func brokerDown(f *faults) {
	defer f.client("broker_wait: 25s", "broker_wait: 2s")()
	f.killBroker()
	id := f.ask("alice", "mitgcm", 0, "-N1")
	plain := f.ask("bob", "stock", 0, "-N1")
	f.completed("bob", plain, 1)
	f.isHeld("alice", id, "broker", "unreachable")
	f.completed("bob", f.ask("bob", "stock", 0, "-N2"), 2)
	f.startBroker()
	f.must("root", "scontrol", "release", id)
	f.completed("alice", id, 1)
}
