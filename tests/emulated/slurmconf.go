// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

const (
	clusterName  = "emulated"
	frontHost    = "front"
	frontAddress = "10.99.0.1"
	firstPort    = 17001
	brokerPort   = 7440
	standbyPort  = 7441
	hooks        = "/opt/kernel-broker/libexec"
)

// setting is one line of slurm.conf.
type setting struct{ key, value string }

func slurmConf(o Options) string {
	lines := settings(o)
	for _, key := range slices.Sorted(maps.Keys(o.Set)) {
		lines = slices.DeleteFunc(lines, func(s setting) bool { return strings.EqualFold(s.key, key) })
		if o.Set[key] != "" {
			lines = append(lines, setting{key, o.Set[key]})
		}
	}
	var b strings.Builder
	for _, s := range lines {
		fmt.Fprintf(&b, "%s=%s\n", s.key, s.value)
	}
	for _, line := range o.Lines {
		fmt.Fprintln(&b, line)
	}
	for i, name := range o.nodeNames() {
		fmt.Fprintf(&b, "NodeName=%s NodeHostname=%s NodeAddr=%s Port=%d CPUs=2 State=UNKNOWN\n", name, name, nodeAddress(i+1), firstPort+i)
	}
	partitions := o.Partitions
	if partitions == nil {
		partitions = []string{
			"PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
			"PartitionName=shared Nodes=ALL OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP",
		}
	}
	for _, line := range partitions {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

func nodeAddress(i int) string { return fmt.Sprintf("10.99.1.%d", i) }

func settings(o Options) []setting {
	scheduler := append([]string{"batch_sched_delay=0", "sched_min_interval=1", "bf_interval=1", "nohold_on_prolog_fail"}, o.SchedulerParameters...)
	controller := append([]string{"reboot_from_controller"}, o.SlurmctldParameters...)
	return append([]setting{
		{"ClusterName", clusterName},
		{"SlurmctldHost", frontHost + "(" + frontAddress + ")"},
		{"SlurmUser", "slurm"},
		{"SlurmdUser", "root"},
		{"AuthType", "auth/munge"},
		{"CredType", "cred/munge"},
		{"StateSaveLocation", "/var/lib/slurm/slurmctld"},
		{"SlurmdSpoolDir", "/var/spool/slurmd"},
		{"SlurmctldPidFile", slurmctldPidFile},
		{"SlurmdPidFile", "/run/slurmd.pid"},
		{"SlurmctldLogFile", "/var/log/slurm/slurmctld.log"},
		{"SlurmdLogFile", "/var/log/slurm/slurmd.log"},
		{"SlurmctldDebug", "debug"},
		{"SlurmdDebug", "debug"},
		{"ProctrackType", "proctrack/linuxproc"},
		{"TaskPlugin", "task/none"},
		{"JobAcctGatherType", "jobacct_gather/none"},
		{"MpiDefault", "none"},
		// Backfill and cons_tres as in production: simpler ones hide races.
		{"SchedulerType", "sched/backfill"},
		{"SelectType", "select/cons_tres"},
		{"SelectTypeParameters", "CR_Core"},
		{"SchedulerParameters", strings.Join(scheduler, ",")},
		{"SlurmctldParameters", strings.Join(controller, ",")},
		{"SlurmdTimeout", "300"},
		{"KillWait", "5"},
		{"MinJobAge", "3600"},
		{"PropagateResourceLimits", "NONE"},
		{"ReturnToService", strconv.Itoa(o.ReturnToService)},
		{"ResumeTimeout", strconv.Itoa(int(o.ResumeTimeout.Seconds()))},
		{"RebootProgram", hooks + "/reboot"},
		{"PrologSlurmctld", hooks + "/prolog-slurmctld"},
		{"EpilogSlurmctld", hooks + "/epilog-slurmctld"},
		{"Epilog", hooks + "/epilog"},
		{"PrologEpilogTimeout", "720"},
		{"PrologFlags", "Alloc,DeferBatch"},
		{"JobRequeue", "1"},
		{"JobSubmitPlugins", "lua"},
		{"PlugStackConfig", "/etc/slurm/plugstack.conf"},
	}, append(powerSettings(o), accountingSettings(o)...)...)
}

func accountingSettings(o Options) []setting {
	if !o.Accounting {
		return nil
	}
	return []setting{
		{"AccountingStorageType", "accounting_storage/slurmdbd"},
		{"AccountingStorageHost", frontHost},
	}
}

func powerSettings(o Options) []setting {
	if o.PowerSaving == 0 {
		return nil
	}
	return []setting{
		{"SuspendProgram", "/emulated/suspend"},
		{"ResumeProgram", "/emulated/resume"},
		{"SuspendTime", "3600"},
		{"SuspendTimeout", "3"},
		{"ResumeRate", "0"},
		{"SuspendRate", "0"},
	}
}

const plugstackConf = "required /opt/kernel-broker/kernel_profile.so kernelctl=/opt/kernel-broker/bin/kernelctl" +
	" proc=/machine/proc sys=/machine/sys\n"

func brokerConfig(o Options) map[string]any {
	return lab.MergeConfig(map[string]any{
		"cluster": clusterName,
		"listen":  fmt.Sprintf("%s:%d", frontAddress, brokerPort),
		"tls":     map[string]any{"mode": "none"},
		"slurm":   map[string]any{"user": "slurm"},
	}, o.Broker)
}

// etcdPort is that of a member for its clients; the next one is for other members.
func etcdPort(member int) int { return 2379 + 2*member }

// etcdAddress is where one of the two brokers reaches etcd.
func etcdAddress(broker int) string { return fmt.Sprintf("10.99.2.%d", broker+1) }

func etcdEndpoints(broker int) (all []string) {
	for i := range members {
		all = append(all, fmt.Sprintf("http://%s:%d", etcdAddress(broker), etcdPort(i)))
	}
	return all
}

// withBrokers lays what two brokers need under the options' own configurations.
func (o Options) withBrokers() Options {
	if !o.TwoBrokers {
		return o
	}
	standby := fmt.Sprintf("%s:%d", frontAddress, standbyPort)
	o.Broker = lab.MergeConfig(map[string]any{
		"etcd":  map[string]any{"endpoints": etcdEndpoints(0)},
		"slurm": map[string]any{"controllers": []string{frontAddress}}, "policy": "",
	}, o.Broker)
	o.Client = lab.MergeConfig(map[string]any{
		"broker": "unix:///run/kernel-broker/broker.sock," + standby, "ca": "", "cluster": clusterName,
	}, o.Client)
	o.Agent = lab.MergeConfig(map[string]any{
		"broker": fmt.Sprintf("%s:%d,%s", frontAddress, brokerPort, standby),
	}, o.Agent)
	return o
}

// standbyConfig is of the second broker, which has its data on the first one's disk.
func standbyConfig(o Options) map[string]any {
	return lab.MergeConfig(brokerConfig(o), map[string]any{
		"listen": fmt.Sprintf("%s:%d", frontAddress, standbyPort),
		"socket": "/run/kernel-broker/standby.sock",
		"etcd":   map[string]any{"endpoints": etcdEndpoints(1)},
		"audit":  map[string]any{"dir": "/var/lib/kernel-broker/standby-audit"}, // it is on the same host
	})
}

func clientConfig(o Options) map[string]any {
	return lab.MergeConfig(map[string]any{
		"log_file": "/var/log/kernel-broker/hooks.log",
	}, o.Client)
}

func agentConfig(o Options) map[string]any {
	return lab.MergeConfig(map[string]any{
		"broker":    fmt.Sprintf("%s:%d", frontAddress, brokerPort),
		"tls":       map[string]any{"mode": "none"},
		"cache":     map[string]any{"max_bytes": 64 << 20},
		"kexec":     map[string]any{"program": "/emulated/kexec"},
		"profiling": map[string]any{"cgroups": []string{"/sys/fs/cgroup/none"}},
		"proc":      "/machine/proc",
		"sys":       "/machine/sys",
	}, o.Agent)
}
