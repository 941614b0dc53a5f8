// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Only what an administrator reboots, or what has no power, and no agent can, is
// left to the site's program, or to its reset.
func TestNoteReboot(t *testing.T) {
	for _, program := range []bool{true, false} {
		f := newFixture(t)
		var mu sync.Mutex
		var resets []string
		f.reset = func(node string) error {
			mu.Lock()
			defer mu.Unlock()
			resets = append(resets, node)
			return nil
		}
		f.start()
		f.attach("n1", "stock", "", bootOne)
		for _, name := range []string{"n1", "m1", "m2"} {
			f.slurm.node(name, "DOWN+DRAIN+REBOOT_ISSUED", "kernel update : reboot issued")
		}
		f.slurm.node("m3", "ALLOCATED+POWERING_UP", "")
		f.slurm.node("m4", "ALLOCATED+REBOOT_ISSUED+POWERING_UP", "")
		f.c.mu.Lock()
		f.c.records.nodes["m2"] = &kb.Node{Name: "m2", Slurm: kb.SlurmSide{Requested: kb.SlurmBoot{Owner: kb.OwnerBroker}}}
		f.c.records.nodes["m4"] = &kb.Node{Name: "m4", Slurm: kb.SlurmSide{PoweredOffBoot: "its last boot"}}
		f.c.mu.Unlock()
		others, err := f.c.NoteReboot(t.Context(), []string{"n1", "m1", "m2", "m3", "m4"}, program)
		if err != nil || !slices.Equal(others, []string{"m1", "m4"}) {
			t.Errorf("others %v, %v", others, err)
		}
		if program {
			continue
		}
		until(t, "a reset", func() bool {
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(resets)
			return slices.Equal(resets, []string{"m1", "m4"})
		})
	}
}

// A job that asks for a boot and for no kernel has its nodes rebooted; one that asked for a kernel is about to come.
func TestRebootForAPlainJob(t *testing.T) {
	f := newFixture(t)
	f.start()
	for i, name := range []string{"n1", "n2", "m1"} {
		if name != "m1" {
			f.attach(name, "stock", "", bootOne)
		}
		id := uint32(20 + i)
		f.slurm.job(id, "CONFIGURING", name)
		f.slurm.node(name, "ALLOCATED+POWERING_UP", "")
	}
	f.slurm.mu.Lock()
	f.slurm.comments["21"] = "kernel-broker: mitgcm requested"
	f.slurm.mu.Unlock()
	others, err := f.c.NoteReboot(t.Context(), []string{"n1", "n2", "m1"}, true)
	if err != nil || !slices.Equal(others, []string{"m1"}) {
		t.Fatalf("left to the site: %v, %v", others, err)
	}
	reboot := func(name string) *kb.Reboot {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		if n := f.c.records.nodes[name]; n != nil {
			return n.Reboot
		}
		return nil
	}
	until(t, "n1 to be rebooted", func() bool { r := reboot("n1"); return r != nil && r.Due })
	if r := reboot("n2"); r != nil {
		t.Errorf("n2, whose job asked for a kernel: %+v", r)
	}
}

// rebooted notes that slurmctld begins to boot nodes, which an administrator asked it for.
func (f *fixture) rebooted(names ...string) {
	f.t.Helper()
	for _, name := range names {
		f.slurm.node(name, "DOWN+DRAIN+REBOOT_ISSUED", "kernel update : reboot issued")
	}
	if _, err := f.c.NoteReboot(f.t.Context(), names, false); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) reboots() int {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return len(f.c.records.begun)
}

// A node that has waited for its reset until somebody else booted it, and has a job by now, is left alone.
func TestRebootSparesANodeThatCameUp(t *testing.T) {
	f := newFixture(t)
	begun, end := make(chan string, 10), make(chan struct{})
	f.reset = func(node string) error { begun <- node; <-end; return nil }
	f.start()
	f.rebooted("m1", "m2", "m3", "m4", "m5")
	until(t, "resets", func() bool { return len(begun) == maxWorkers[resets] })
	f.slurm.node("m5", "ALLOCATED", "")
	close(end)
	until(t, "nothing is left to do", func() bool { return f.reboots() == 0 })
	if len(begun) != maxWorkers[resets] {
		t.Errorf("%d resets", len(begun))
	}
}

// What the hook was told outlives the broker that told it: the next one resets the node, and boots the one with an agent.
func TestBegunBootsSurviveTheBroker(t *testing.T) {
	f := newFixture(t)
	done := make(chan string, 10)
	f.reset = func(string) error { return errors.New("no answer") }
	f.start()
	f.rebooted("m1")
	f.slurm.job(20, "CONFIGURING", "n1")
	f.slurm.node("n1", "ALLOCATED+POWERING_UP", "")
	if _, err := f.c.NoteReboot(t.Context(), []string{"n1"}, true); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.reset = func(node string) error { done <- node; return nil }
	f.start()
	until(t, "the reset", func() bool { return len(done) == 1 && <-done == "m1" })
	f.attach("n1", "stock", "", bootOne)
	until(t, "n1 to be rebooted", func() bool {
		v, err := f.c.Node("n1")
		return err == nil && v.Node.Reboot != nil && v.Node.Reboot.Due
	})
	until(t, "nothing is left to do", func() bool { return f.reboots() == 0 })
}

// A reset that fails is tried again for as long as Slurm waits for the boot.
func TestRebootThatFails(t *testing.T) {
	f := newFixture(t)
	tries := make(chan string, 10)
	f.reset = func(node string) error {
		if tries <- node; len(tries) == 1 {
			return errors.New("no answer")
		}
		return nil
	}
	f.start()
	f.rebooted("m1")
	until(t, "nothing is left to do", func() bool { return f.reboots() == 0 })
	if len(tries) != 2 {
		t.Errorf("%d resets", len(tries))
	}
}

// An agent has a moment to come to a broker that has just begun: it reboots its node itself.
func TestRebootWaitsForAgents(t *testing.T) {
	for _, comes := range []bool{true, false} {
		f := newFixture(t)
		done := make(chan string, 10)
		f.reset = func(node string) error { done <- node; return nil }
		f.start()
		f.attach("n1", "stock", "", bootOne)
		until(t, "n1 is known", func() bool { v, err := f.c.Node("n1"); return err == nil && v.Node.Boot.BootID == bootOne })
		f.restart()
		f.rebooted("n1")
		time.Sleep(50 * time.Millisecond)
		if len(done) > 0 || f.reboots() != 1 {
			t.Fatalf("%d resets", len(done))
		}
		if comes { // it reboots its node
			s := f.attach("n1", "stock", "", bootOne)
			until(t, "nothing is left to do", func() bool { return f.reboots() == 0 })
			s.Detach()
		}
		f.c.mu.Lock()
		f.c.lost["n1"] = f.c.lost["n1"].Add(-reconnectGrace)
		f.c.mu.Unlock()
		until(t, "nothing is left to do", func() bool { return f.reboots() == 0 })
		if reset := len(done) > 0; reset == comes {
			t.Errorf("its agent comes: %t, reset: %t", comes, reset)
		}
		f.stop()
	}
}
