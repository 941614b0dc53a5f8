// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// brokers are the two of a cluster, by their numbers.
func (c cluster) brokers() [2]emulated.Daemon {
	return [2]emulated.Daemon{c.Broker(), c.Standby()}
}

// health is what kernelctl says, without the table's line breaks.
func (c cluster) health() string {
	c.T.Helper()
	return strings.Join(strings.Fields(c.Try("root", "kernelctl", "health").Stdout), " ")
}

// is reports whether a broker serves or waits.
func (c cluster) is(broker int, what string) bool {
	c.T.Helper()
	pid, err := c.brokers()[broker].PID()
	return err == nil && strings.Contains(c.health(), fmt.Sprintf("pid %d, which %s", pid, what))
}

// turns waits until a broker acts and the other one is in line.
func (c cluster) turns(acts, waits int) {
	c.T.Helper()
	c.Wait(limit, fmt.Sprintf("broker %d to act and the other one to wait", acts), func() bool { return c.is(acts, "serves") && c.is(waits, "waits") }, c.health)
}

// Of two brokers the one that acts is killed, stopped and cut off from etcd by turns, and members of etcd are killed, each time
// while a node switches and a job runs. The other broker acts, each job runs once and on its kernel, each switch is one boot and
// each return another, no node is taken out of service, and the old broker, back, waits.
func TestBrokersTakeTurns(t *testing.T) {
	t.Parallel()
	c := cluster{emulated.Start(t, func(o *emulated.Options) { o.TwoBrokers = true })}
	ctx := context.WithoutCancel(c.Ctx)
	signal := func(s syscall.Signal) func(int) error {
		return func(i int) error { return c.brokers()[i].Signal(ctx, s) }
	}
	member, acts := 0, 0
	for _, fault := range []struct {
		name       string
		begin, end func(acts int) error
		same       bool // the same broker acts
	}{
		{"killed", func(i int) error { return c.brokers()[i].Kill(ctx) }, func(i int) error { return c.brokers()[i].Start(ctx) }, false},
		{"stopped", signal(syscall.SIGSTOP), signal(syscall.SIGCONT), false},
		{"cut off", func(i int) error { return c.CutOff(ctx, i) }, func(i int) error { return c.Connect(ctx, i) }, false},
		{"etcd", func(int) error { return c.Etcd(member).Kill(ctx) }, func(int) error { return c.Etcd(member).Start(ctx) }, true},
		{"etcd again", func(int) error { member++; return c.Etcd(member).Kill(ctx) }, func(int) error { return c.Etcd(member).Start(ctx) }, true},
		{"etcd's last", func(int) error { member++; return c.Etcd(member).Kill(ctx) }, func(int) error { return c.Etcd(member).Start(ctx) }, true},
	} {
		c.turns(acts, 1-acts)
		before := map[string]int{}
		for _, n := range []string{"n1", "n2", "n3"} {
			before[n] = len(c.BootsOf(n))
		}
		running := c.held("alice", 1, "--nodelist=n2", profile)
		id, goOn := c.inSwitch("n1")
		c.OK(fault.begin(acts))
		follows := 1 - acts
		if fault.same {
			follows = acts
		}
		c.Wait(limit, fault.name+": a broker to act", func() bool { return c.is(follows, "serves") }, c.health)
		next := c.Sbatch("alice", "0", "-N1", "--nodelist=n3", profile) // begins without the old one
		goOn()
		c.LetGo("alice", running)
		jobs := []string{running, id, next}
		for _, job := range jobs {
			c.completed(job)
			c.ran("alice", job, "mitgcm", 1)
			if restarts := c.Job(job)["Restarts"]; restarts != "0" {
				t.Errorf("%s: job %s was started %s times again", fault.name, job, restarts)
			}
		}
		c.OK(fault.end(acts))
		c.turns(follows, 1-follows)
		c.home()
		for node, boots := range before {
			if now := len(c.BootsOf(node)); now != boots+2 {
				t.Errorf("%s: %s booted %d times, want 2", fault.name, node, now-boots)
			}
		}
		acts = follows
	}
	text, err := os.ReadFile(c.Slurmctld().Log())
	c.OK(err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "reason set to: kernel-broker:") {
			t.Error("a node was taken out of service: " + line)
		}
	}
}
