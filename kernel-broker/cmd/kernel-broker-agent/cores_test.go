// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A kernel with system cores boots with the arguments that this node composes from its own topology, and stock without them.
func TestSystemCores(t *testing.T) {
	b, n := servingStock(t)
	if h := b.hello(1); h.Inventory.Cores != 4 || h.Inventory.Cpus != 8 || h.Inventory.ApplicationCpus != "" {
		t.Errorf("inventory on stock: %v", h.Inventory)
	}
	kernel := mitgcm(b)
	kernel.SystemCores = 1
	w := b.setDesired(desiredSwitch(kernel, 7))
	b.report(w.Generation, executing)
	n.kexecs()
	want := "kernelbroker.begin root=/dev/vda ro console=ttyS0 nohz=off isolcpus=managed_irq,1-3,5-7 nohz_full=1-3,5-7 rcu_nocbs=1-3,5-7 " +
		"irqaffinity=0,4 systemd.cpu_affinity=0,4 kernelbroker.system_cpus=0,4 kernelbroker.token=" + token(7) + "\n"
	if got := n.read("proc/cmdline"); got != want {
		t.Errorf("command line %q, want %q", got, want)
	}
	n.file("sys/devices/system/cpu/nohz_full", "1-3,5-7\n")
	n.up()
	if h := b.hello(2); h.Token != token(7) || h.Inventory.ApplicationCpus != "1-3,5-7" {
		t.Errorf("hello: %v", h)
	}
}

// On such a kernel the agent, and a slurmd that it starts, run on the system CPUs only.
func TestDaemonsKeepToTheSystemCPUs(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	n.file("proc/cmdline", "root=/dev/vda ro kernelbroker.system_cpus=0\n")
	b.setDesired(desiredStock(1))
	n.spawn()
	n.until("slurmd", func() bool { return n.slurmdPID() > 0 })
	if got := allowed(t, n.slurmdPID()); got != "0" {
		t.Errorf("slurmd may use the CPUs %s", got)
	}
}

// An affinity that cannot be had keeps no node from its work.
func TestNoSystemCPUIsThere(t *testing.T) {
	for _, list := range []string{"8000", "0-", "rubbish"} {
		b := newFakeBroker(t)
		n := newFakeNode(t, b.address)
		n.file("proc/cmdline", "root=/dev/vda kernelbroker.system_cpus="+list+"\n")
		b.setDesired(desiredStock(1))
		kill := n.spawn()
		n.until("slurmd", func() bool { return n.slurmdPID() > 0 })
		if got, mine := allowed(t, n.slurmdPID()), allowed(t, os.Getpid()); got != mine {
			t.Errorf("%s: slurmd may use the CPUs %s, not %s", list, got, mine)
		}
		if !strings.Contains(n.logs.String(), "use the application's CPUs too") {
			t.Errorf("%s: nothing is said of it", list)
		}
		kill()
	}
}

func allowed(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nCpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list)
}
