// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// takeover is how soon the other broker acts, on a machine that emulates processors meanwhile.
const takeover = 30 * time.Second

// brokers are the two of a cluster, by their numbers.
func (f *faults) brokers() [2]lab.Daemon { return [2]lab.Daemon{f.Broker(), f.Standby()} }

// health is what kernelctl says, without the table's line breaks.
func (f *faults) health() string {
	f.t.Helper()
	return strings.Join(strings.Fields(f.try("root", "kernelctl", "health").Stdout), " ")
}

// is reports whether a broker serves or waits.
func (f *faults) is(broker int, what string) bool {
	f.t.Helper()
	pid, err := f.brokers()[broker].PID(f.ctx)
	return err == nil && strings.Contains(f.health(), fmt.Sprintf("pid %s, which %s", pid, what))
}

// Of two brokers, each with a disk of its own, the one that acts is killed, stopped and cut off from etcd by turns, and a member of
// etcd is killed, while real nodes boot by kexec. The other one acts, each job runs once and on its kernel, each node boots once
// for it and once for its return, and Slurm keeps none out of service.
func TestFaultBrokers(t *testing.T) {
	f := startFaults(t, func(o *lab.Options) { o.TwoBrokers = true })
	ctx := context.WithoutCancel(t.Context())
	acts := 0
	for _, fault := range []struct {
		name       string
		begin, end func(f *faults, acts int) error
		same       bool // the same broker acts
	}{
		{"killed", func(f *faults, i int) error { return f.brokers()[i].Kill9(ctx) }, func(f *faults, i int) error { return f.brokers()[i].Start(ctx) }, false},
		{"stopped", func(f *faults, i int) error { return f.brokers()[i].Signal(ctx, syscall.SIGSTOP) },
			func(f *faults, i int) error { return f.brokers()[i].Signal(ctx, syscall.SIGCONT) }, false},
		{"cut-off", func(f *faults, i int) error { return f.CutOff(ctx, i) }, func(f *faults, i int) error { return f.Connect(ctx, i) }, false},
		{"member", func(f *faults, _ int) error { return f.Member(0).Kill9(ctx) }, func(f *faults, _ int) error { return f.Member(0).Start(ctx) }, true},
		{"another-member", func(f *faults, _ int) error { return f.Member(1).Kill9(ctx) }, func(f *faults, _ int) error { return f.Member(1).Start(ctx) }, true},
	} {
		f.on(fault.name, func(f *faults) {
			follows := 1 - acts
			if fault.same {
				follows = acts
			}
			f.wait(time.Minute, "one broker to act and the other one to wait", func() bool { return f.is(acts, "serves") && f.is(1-acts, "waits") })
			before := f.bootIDs()
			id := f.askHeld("alice", "mitgcm", "-N2")
			f.executing("mitgcm", f.Nodes()...)
			if err := fault.begin(f, acts); err != nil {
				f.t.Fatal(err)
			}
			f.wait(takeover, "a broker to act", func() bool { return f.is(follows, "serves") })
			f.letGo("alice", id)
			tasks := f.completed("alice", id, 2)
			if restarts := f.job(id)["Restarts"]; restarts != "0" {
				f.t.Errorf("job %s was started %s times again", id, restarts)
			}
			if err := fault.end(f, acts); err != nil {
				f.t.Fatal(err)
			}
			f.settled()
			for node, boot := range f.bootIDs() {
				on := ""
				for _, r := range tasks {
					if r["node"] == node {
						on = r["boot_id"]
					}
				}
				if j, _ := f.seen(id); j.boots(node) != 2 || on == "" || on == before[node] || boot == on {
					f.t.Errorf("%s booted %d times for job %s: %s, %s, %s", node, j.boots(node), id, before[node], on, boot)
				}
			}
			acts = follows
		})
	}
}

// bootIDs are the nodes' present boots.
func (f *faults) bootIDs() map[string]string {
	f.t.Helper()
	ids := map[string]string{}
	for _, n := range f.Nodes() {
		r, err := n.Exec(f.ctx, "cat", "/proc/sys/kernel/random/boot_id")
		if err != nil {
			f.t.Fatal(err)
		}
		ids[n.Name()] = strings.TrimSpace(r.Stdout)
	}
	return ids
}

// boots counts the boots of a node for the job and for its return.
func (j brokerJob) boots(node string) (n int) {
	for _, e := range j.Timeline {
		if e.Node == node && e.Event == "booted" {
			n++
		}
	}
	return n
}
