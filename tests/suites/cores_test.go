// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// splitProfile keeps a core of each node for the system, on a kernel that only the long suites build.
const splitProfile = `name: split
application: a model whose processes wait for each other
description: A core of each node for the system
default_version: 1
versions:
  - version: 1
    kernel: mitgcm-cores
    cores: {system: 1}
`

// splitScript writes down what the kernel made of its arguments, the CPUs that slurmd, the agent, the batch script and a
// step may use, and the CPUs of the devices' interrupts, but for a disk's, which has a queue on each CPU.
const splitScript = `#!/bin/bash
allowed() { grep Cpus_allowed_list: "/proc/${1%% *}/status" | cut -f2; }
interrupts() {
	for action in /proc/irq/*/*/; do
		case $action in *-req.*) ;; *) cat "$action/../effective_affinity_list" ;; esac
	done | sort -u | tr '\n' ';'
}
echo "ran release=$(uname -r) isolated=$(cat /sys/devices/system/cpu/isolated) tickless=$(cat /sys/devices/system/cpu/nohz_full) \
slurmd=$(allowed "$(pidof slurmd)") agent=$(allowed "$(pidof kernel-broker-agent)") batch=$(allowed self) \
steps=$(srun -n2 grep Cpus_allowed_list: /proc/self/status | cut -f2 | sort | tr '\n' ';') \
interrupts=$(interrupts)" >>record
`

// A job on a kernel that divides the cores: the running kernel itself keeps its tick and the interrupts of devices from
// the application's cores, slurmd and the agent are on the system's, the job on the others. After the job the node has all
// its cores again.
func TestSystemCores(t *testing.T) {
	c := start(t, func(o *lab.Options) { o.Nodes, o.CPUs = 1, 3 })
	c.kernelFolder("mitgcm-cores")
	c.apply("split", splitProfile)
	c.file("alice", "split.sh", splitScript)
	id := c.sbatch("alice", "-N1", "-n2", "--kernel-profile=split", "split.sh")
	c.waitJob(id, "COMPLETED")
	records := c.records("alice", "")
	if len(records) != 1 {
		t.Fatalf("records %v", records)
	}
	for what, want := range map[string]string{
		"release": c.kernelOf("split").release, "isolated": "", "tickless": "1-2",
		"slurmd": "0", "agent": "0", "batch": "1-2", "steps": "1-2;1-2;", "interrupts": "0;",
	} {
		if got := records[0][what]; got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	c.settled()
	r, err := c.Node(1).Shell(c.ctx, "cat /sys/devices/system/cpu/nohz_full /proc/cmdline; allowed() { grep Cpus_allowed_list: /proc/$1/status; }; allowed $(pidof slurmd)")
	if err != nil || strings.Contains(r.Stdout, "1-2") || !strings.Contains(r.Stdout, "0-2") {
		t.Errorf("back on stock, the node says %s%s (%v)", r.Stdout, r.Stderr, err)
	}
}
