// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// libexec is where the product's hooks live on front-end and nodes.
const (
	libexec   = "/usr/libexec/kernel-broker"
	pluginDir = "/usr/lib/kernel-broker"
)

// setting is one line of slurm.conf.
type setting struct{ key, value string }

// slurmConf renders slurm.conf; mode determines SlurmUser.
func slurmConf(o Options, m Mode) string {
	lines := baseSettings(o, m)
	if !o.WithoutProduct {
		lines = append(lines, productSettings(o)...)
	}
	for _, k := range slices.Sorted(maps.Keys(o.Slurm.Set)) {
		lines = override(lines, k, o.Slurm.Set[k])
	}
	var b strings.Builder
	b.WriteString("# Written by kblab; the next \"up\" writes it again.\n")
	for _, s := range lines {
		fmt.Fprintf(&b, "%s=%s\n", s.key, s.value)
	}
	for i := 1; i <= o.Nodes; i++ {
		fmt.Fprintf(&b, "NodeName=%s NodeAddr=%s CPUs=%d RealMemory=%d State=UNKNOWN\n",
			nodeName(i), nodeAddress(i), o.CPUs, slurmMemory(o.Memory))
	}
	all := fmt.Sprintf("n[1-%d]", o.Nodes)
	fmt.Fprintf(&b, "PartitionName=main Nodes=%s Default=YES MaxTime=INFINITE State=UP\n", all)
	fmt.Fprintf(&b, "PartitionName=shared Nodes=%s OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP\n", all)
	return b.String()
}

// slurmMemory leaves room for the largest kernel: a node that reports less
// than its RealMemory is drained, and the kernels of one node differ.
func slurmMemory(machine int) int { return machine - max(machine/4, 112) }

func baseSettings(o Options, m Mode) []setting {
	track, task := "proctrack/linuxproc", "task/none"
	if o.Slurm.Cgroup {
		track, task = "proctrack/cgroup", "task/cgroup"
	}
	// Backfill and cons_tres as in production: simpler ones hide races.
	scheduler := []string{"batch_sched_delay=0", "sched_min_interval=1"}
	if !o.WithoutProduct {
		scheduler = append(scheduler, "nohold_on_prolog_fail")
	}
	scheduler = append(scheduler, o.Slurm.SchedulerParameters...)
	return append([]setting{
		{"ClusterName", "lab"},
		{"SlurmctldHost", fmt.Sprintf("%s(%s)", frontHost, frontAddress)},
		{"SlurmUser", service(m, "slurm")},
		{"SlurmdUser", "root"},
		{"AuthType", "auth/munge"},
		{"CredType", "cred/munge"},
		{"StateSaveLocation", "/var/lib/slurm/slurmctld"},
		{"SlurmdSpoolDir", "/var/lib/slurm/slurmd"},
		{"SlurmctldPidFile", slurmctldPidFile},
		{"SlurmdPidFile", "/run/slurmd.pid"},
		{"SlurmctldLogFile", "/var/log/slurm/slurmctld.log"},
		{"SlurmdLogFile", "/var/log/slurm/slurmd.log"},
		{"SlurmctldDebug", "verbose"},
		{"SlurmdDebug", "verbose"},
		{"ProctrackType", track},
		{"TaskPlugin", task},
		{"JobAcctGatherType", "jobacct_gather/none"},
		{"MpiDefault", "none"},
		{"SchedulerType", "sched/backfill"},
		{"SelectType", "select/cons_tres"},
		{"SelectTypeParameters", "CR_Core"},
		{"SchedulerParameters", strings.Join(scheduler, ",")},
		{"ReturnToService", strconv.Itoa(o.Slurm.ReturnToService)},
		{"SlurmdTimeout", "300"},
		{"KillWait", "5"},
		// The host's limits are meaningless inside a small virtual machine.
		{"PropagateResourceLimits", "NONE"},
	}, append(accountingSettings(o), restSettings(o)...)...)
}

// productSettings are Kernel Broker's requirements of slurm.conf.
func productSettings(o Options) []setting {
	flags := "Alloc,DeferBatch"
	if o.Slurm.Cgroup {
		flags += ",Contain" // a job has a process on each node from start to end
	}
	return []setting{
		{"SlurmctldParameters", "reboot_from_controller"},
		{"RebootProgram", libexec + "/reboot"},
		{"ResumeTimeout", "600"},
		{"PrologSlurmctld", libexec + "/prolog-slurmctld"},
		{"EpilogSlurmctld", libexec + "/epilog-slurmctld"},
		{"Epilog", libexec + "/epilog"},
		{"PrologEpilogTimeout", "720"},
		{"PrologFlags", flags},
		{"JobRequeue", "1"},
		{"JobSubmitPlugins", "lua"},
	}
}

func override(lines []setting, key, value string) []setting {
	i := slices.IndexFunc(lines, func(s setting) bool { return strings.EqualFold(s.key, key) })
	switch {
	case i < 0 && value == "":
		return lines
	case i < 0:
		return append(lines, setting{key, value})
	case value == "":
		return slices.Delete(lines, i, i+1)
	}
	lines[i].value = value
	return lines
}

// cgroupConf is for machines without systemd; slurmd 22.05 reads it with any process tracking. A node's rc.sh recognises
// by ConstrainCores that it must delegate the controllers, as systemd does elsewhere.
func cgroupConf(o Options) string {
	text := "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainRAMSpace=no\n"
	if o.Slurm.Cgroup {
		text += "ConstrainCores=yes\n"
	}
	return text
}

func plugstackConf(o Options) string {
	if o.WithoutProduct {
		return "# plain Slurm\n"
	}
	// Not the plugin's default, /usr/bin: the lab's front-end keeps the host's.
	return "required " + pluginDir + "/kernel_profile.so kernelctl=" + kernelctlPath + "\n"
}
