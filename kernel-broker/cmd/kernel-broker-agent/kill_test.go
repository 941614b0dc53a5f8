// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/kexec"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// spawn runs the agent in a process of its own, to be killed.
func (n *fakeNode) spawn() (kill func()) {
	n.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), agentProcess+"="+n.configFile())
	cmd.Stderr = n.logs
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil {
			n.t.Error(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) {
			n.t.Errorf("the agent was not killed: %v", err)
		}
	})
	n.t.Cleanup(kill)
	return kill
}

// agentProcess is the variable that turns the test program into an agent.
const agentProcess = "KERNEL_BROKER_AGENT_PROCESS"

// TestKilled: kill -9 at each point, and another agent carries on to the boot.
func TestKilled(t *testing.T) {
	desiredKernel := func(b *fakeBroker) *api.Desired { return b.setDesired(desiredSwitch(mitgcm(b), 7)) }
	for _, c := range []struct {
		name string
		// reach brings a spawned agent to the point and returns a function that lets the next one continue.
		reach func(*fakeBroker, *fakeNode) func()
	}{
		{"serving", func(b *fakeBroker, _ *fakeNode) func() { return func() { desiredKernel(b) } }},
		{"fetching", func(b *fakeBroker, _ *fakeNode) func() {
			release := holdFetch(b)
			desiredKernel(b)
			b.fetches(1)
			return func() { b.with(func() { b.chunk = nil }); release() }
		}},
		{"loaded", func(b *fakeBroker, n *fakeNode) func() {
			release := blockingStop(n)
			b.report(desiredKernel(b).Generation, loaded)
			n.until("the stopping", func() bool { return strings.Contains(n.logs.String(), "to=loaded") })
			return release
		}},
		{"announcing", func(b *fakeBroker, _ *fakeNode) func() {
			receipts := make(chan struct{})
			b.with(func() { b.receipts = receipts })
			b.report(desiredKernel(b).Generation, executing)
			return func() { close(receipts); b.with(func() { b.receipts = nil }) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newFakeBroker(t)
			n := newFakeNode(t, b.address)
			b.setDesired(desiredStock(1))
			kill := n.spawn()
			b.slurmd(true, 1)
			goOn := c.reach(b, n)
			kill()
			n.up()
			b.hello(2)
			goOn()
			n.until("the kexec", func() bool { return n.exists("executed") })
			if n.starts() != 1 {
				t.Errorf("slurmd was started %d times", n.starts())
			}
			b.never(failed)
		})
	}
}

func TestKillWhileServingIsHarmless(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	b.setDesired(desiredStock(1))
	kill := n.spawn()
	b.slurmd(true, 1)
	pid := n.slurmdPID()
	kill()
	n.up()
	if h := b.hello(2); !h.SlurmdRunning {
		t.Error("the new agent does not recognise its slurmd")
	}
	w := b.setDesired(desiredStock(1))
	b.until("the report on slurmd", func() bool { return lastSlurmd(b) >= w.Generation })
	if n.slurmdPID() != pid || n.starts() != 1 {
		t.Errorf("slurmd was process %d and is %d, started %d times", pid, n.slurmdPID(), n.starts())
	}
}

// A switch is cancelled while no agent runs: the next agent unloads the kernel and starts slurmd, which the first had
// stopped.
func TestCancelWhileAgentIsDown(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	b.setDesired(desiredStock(1))
	kill := n.spawn()
	b.slurmd(true, 1)
	b.with(func() { b.receipts = make(chan struct{}) })
	b.report(b.setDesired(desiredSwitch(mitgcm(b), 7)).Generation, executing)
	kill()
	b.with(func() { close(b.receipts); b.receipts = nil })
	b.setDesired(desiredStock(1))
	n.up()
	restedOnStock(b, n, 2)
}

// An agent takes over from one that is about to end, and not from a running one.
func TestTakeOver(t *testing.T) {
	b, n := servingStock(t)
	first := n.end
	n.up()
	time.Sleep(300 * time.Millisecond)
	b.with(func() {
		if len(b.hellos) != 1 {
			t.Error("two agents at once")
		}
	})
	if err := first(); err != nil {
		t.Error(err)
	}
	b.hello(2)
	second := n.end
	n.up()
	err := <-n.result
	if !errors.Is(err, kexec.ErrInUse) {
		t.Errorf("the third agent: %v", err)
	}
	n.end = second
}
