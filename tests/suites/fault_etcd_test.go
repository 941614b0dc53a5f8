// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// The records' store fails and returns. Nothing is done without a record, and no acknowledged record is lost.
func TestFaultEtcd(t *testing.T) {
	f := startFaults(t, func(o *lab.Options) { o.ExternalEtcd = true })
	etcd := f.Etcd()
	ok := func(err error) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	// A broker whose etcd is away for longer than its lease ends (ADR 0058), and systemd starts it again.
	ended := func(f *faults) bool { return len(f.processes(brokerProgram)) == 0 }
	back := func(f *faults) {
		f.wait(time.Minute, "the broker's end", func() bool { return ended(f) })
		ok(etcd.Start(f.ctx))
		f.startBroker()
	}
	f.on("hangs-while-nodes-load", func(f *faults) {
		at := f.logSize()
		id := f.ask("alice", "mitgcm", 0, "-N2")
		f.logged(at, `"allocation changed" .*to=switching`)
		ok(etcd.Signal(f.ctx, syscall.SIGSTOP))
		f.logged(at, `"pass not committed"|"this broker may not act any more"`)
		ok(etcd.Signal(f.ctx, syscall.SIGCONT))
		if ended(f) { // on a slow machine
			f.startBroker()
		}
		f.completed("alice", id, 2)
	})
	f.on("killed-while-nodes-boot", func(f *faults) {
		at := f.logSize()
		id := f.ask("bob", "mitgcm", 0, "-N2")
		f.logged(at, `node=n1 .*to=booting desired=mitgcm`)
		ok(etcd.Kill9(f.ctx))
		back(f)
		f.completed("bob", id, 2)
	})
	f.on("away-at-the-jobs-end", func(f *faults) {
		id := f.askHeld("alice", "mitgcm", "-N2")
		f.waitJob(id, "RUNNING")
		ok(etcd.Stop(f.ctx))
		f.letGo("alice", id)
		f.waitJob(id, "COMPLETED")
		back(f)
		f.completed("alice", id, 2)
	})
	f.on("away-at-submit", func(f *faults) {
		ok(etcd.Stop(f.ctx))
		id := f.ask("alice", "mitgcm", 0, "-N1")
		f.completed("bob", f.ask("bob", "stock", 0, "-N1"), 1)
		back(f)
		f.completed("alice", id, 1)
	})
}
