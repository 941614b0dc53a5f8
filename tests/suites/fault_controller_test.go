// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// Nodes that hang are reset by the line for IPMI of docs/ops/kexec.md: ipmitool asks the node's management controller,
// OpenIPMI's simulated one, which presses the machine's button.
func TestFaultController(t *testing.T) {
	if slurmroot.Wanted() != slurmroot.Default {
		t.Skip("the front-end has ipmitool where it has this host's /usr, and another Slurm's is in its own")
	}
	f := startFaults(t, func(o *lab.Options) {
		o.Broker = map[string]any{
			"reset_command": chassisPower("{node}", "cycle"),
			"switch":        map[string]any{"reset_grace": "2m", "reboot_timeout": "2m", "stock_timeout": "60s"},
		}
	})
	f.controllers()
	for _, node := range f.Nodes() {
		f.controllerOn(node)
	}
	for _, name := range []string{"hangs", "hangs-too"} {
		f.profile(name, "mitgcm", []string{"initcall_blacklist=virtio_net_driver_init"}, "boot_timeout: 15s", "boot_attempts: 1")
	}
	f.on("nodes-that-hang-are-power-cycled", func(f *faults) {
		id := f.ask("alice", "hangs", 0, "-N2")
		f.isHeld("alice", id, "hangs@1")
		f.happened(id, "", "reset")
		f.settled()
		for _, node := range f.Nodes() {
			if got := f.pressed(node); got != "off\non\n" {
				f.t.Errorf("the controller of %s did %q, want one power cycle", node.Name(), got)
			}
		}
		f.cancelled("alice", id)
	})
	f.on("a-controller-that-answers-late", func(f *faults) {
		n1 := f.Node(1)
		f.controllerOff(n1)
		at := f.logSize()
		id := f.ask("alice", "hangs-too", 0, "-N1", "--nodelist=n1")
		f.logged(at, `node \\?"n1\\?": reset command`)
		f.controllerOn(n1)
		f.isHeld("alice", id, "hangs-too@1")
		f.settled()
		if got := f.pressed(n1); got != "off\non\noff\non\n" {
			f.t.Errorf("the controller of n1 did %q, want a second power cycle", got)
		}
		f.cancelled("alice", id)
	})
}

// chassisPower is the documented command line.
func chassisPower(node, action string) []string {
	return []string{"/usr/bin/ipmitool", "-I", "lanplus", "-L", "OPERATOR", "-H", node + "-bmc", "-U", "kernel-broker",
		"-f", "/run/lab/bmc/password", "chassis", "power", action}
}

// controllers gives the nodes' controllers their names, and the broker its password.
func (f *faults) controllers() {
	f.t.Helper()
	dir := filepath.Join(f.Dir(), "bmc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	f.put(filepath.Join(dir, "password"), "secret", 0o644)
	f.must("root", "sh", "-c", `cat /etc/hosts >/run/lab/bmc/hosts
printf '127.0.2.1 n1-bmc\n127.0.2.2 n2-bmc\n' >>/run/lab/bmc/hosts
mount --bind /run/lab/bmc/hosts /etc/hosts`)
}

func (f *faults) put(path, text string, mode os.FileMode) {
	f.t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		f.t.Fatal(err)
	}
}

// controllerOn starts a node's controller. Power on presses the machine's reset button.
func (f *faults) controllerOn(node lab.Node) {
	f.t.Helper()
	name := node.Name()
	in := func(file string) string { return filepath.Join(f.Dir(), "bmc", name+file) }
	f.put(in(".chassis"), fmt.Sprintf(`#!/bin/sh
case "$*" in
"get power") echo "power:$(cat /run/lab/bmc/%[1]s.power)" ;;
"set power 0") echo 0 >/run/lab/bmc/%[1]s.power; echo off >>/run/lab/bmc/%[1]s.log ;;
"set power 1") echo 1 >/run/lab/bmc/%[1]s.power; echo on >>/run/lab/bmc/%[1]s.log; exec /usr/local/bin/kblab bmc reset %[1]s ;;
*) exit 1 ;;
esac
`, name), 0o755)
	f.put(in(".power"), "1\n", 0o644)
	f.put(in(".lan"), fmt.Sprintf(`name "%[1]s"
set_working_mc 0x20
  startlan 1
    addr 127.0.2.%[2]s 623
    priv_limit admin
    allowed_auths_user none md5
    allowed_auths_operator none md5
    allowed_auths_admin none md5
    guid a123456789abcdefa123456789abcde%[2]s
  endlan
  chassis_control "/run/lab/bmc/%[1]s.chassis"
  user 2 true "kernel-broker" "secret" operator 10 none md5
`, name, strings.TrimPrefix(name, "n")), 0o644)
	f.put(in(".commands"), "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n", 0o644)
	f.must("root", "sh", "-c", fmt.Sprintf(`cd /run/lab/bmc && mkdir -p %[1]s.state
setsid ipmi_sim -n -c %[1]s.lan -f %[1]s.commands -s %[1]s.state </dev/null >%[1]s.out 2>&1 & echo $! >%[1]s.pid`, name))
	f.wait(settleLimit, "the controller of "+name, func() bool {
		return f.try("root", chassisPower(name, "status")...).Exit == 0
	})
}

func (f *faults) controllerOff(node lab.Node) {
	f.t.Helper()
	f.must("root", "sh", "-c", fmt.Sprintf("kill -9 $(cat /run/lab/bmc/%s.pid)", node.Name()))
}

// pressed is what a node's controller has done to its machine.
func (f *faults) pressed(node lab.Node) string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.Dir(), "bmc", node.Name()+".log"))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}
