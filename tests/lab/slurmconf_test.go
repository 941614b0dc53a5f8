// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

func conf(t *testing.T, o Options, m Mode) map[string]string {
	t.Helper()
	values := map[string]string{}
	for line := range strings.Lines(slurmConf(o, m)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, twice := values[key]; twice && key != "NodeName" && key != "PartitionName" {
			t.Errorf("key %s appears twice: slurmctld would take one of them", key)
		}
		values[key] = value
	}
	return values
}

func TestSlurmConfOfTheProduct(t *testing.T) {
	c := conf(t, Options{Nodes: 2, Memory: 512, CPUs: 1}, ModeRoot)
	want := map[string]string{
		"SlurmctldParameters": "reboot_from_controller",
		"RebootProgram":       "/usr/libexec/kernel-broker/reboot",
		"PrologSlurmctld":     "/usr/libexec/kernel-broker/prolog-slurmctld",
		"EpilogSlurmctld":     "/usr/libexec/kernel-broker/epilog-slurmctld",
		"Epilog":              "/usr/libexec/kernel-broker/epilog",
		"PrologFlags":         "Alloc,DeferBatch",
		"JobSubmitPlugins":    "lua",
		"ReturnToService":     "0",
		"SlurmUser":           "slurm",
		"ProctrackType":       "proctrack/linuxproc",
		"TaskPlugin":          "task/none",
	}
	for k, v := range want {
		if c[k] != v {
			t.Errorf("%s=%s, want %s", k, c[k], v)
		}
	}
	if s := c["SchedulerParameters"]; !strings.Contains(s, "nohold_on_prolog_fail") {
		t.Errorf("SchedulerParameters=%s: a gate's failure would hold the job", s)
	}
}

func TestSlurmConfWithoutTheProductHasNoHook(t *testing.T) {
	text := slurmConf(Options{Nodes: 1, Memory: 512, CPUs: 1, WithoutProduct: true}, ModeRoot)
	for _, word := range []string{"kernel-broker", "Prolog", "Epilog", "RebootProgram", "lua", "prolog"} {
		if strings.Contains(text, word) {
			t.Errorf("plain Slurm has %q in slurm.conf", word)
		}
	}
	if strings.Contains(plugstackConf(Options{WithoutProduct: true}), "required") {
		t.Error("plain Slurm loads a plugin")
	}
}

// The nodes' first script reads the same line.
func TestCgroupConf(t *testing.T) {
	for _, with := range []bool{false, true} {
		text := cgroupConf(Options{Slurm: SlurmOptions{Cgroup: with}})
		if strings.Contains(text, "\nConstrainCores=yes\n") != with {
			t.Errorf("with cgroups %t:\n%s", with, text)
		}
	}
	if script, err := guestFiles.ReadFile("files/rc.sh"); err != nil || !strings.Contains(string(script), "'^ConstrainCores=yes'") {
		t.Errorf("rc.sh does not look for the line that hands controllers down (%v)", err)
	}
}

func TestSlurmConfOptions(t *testing.T) {
	o := Options{Nodes: 3, Memory: 1024, CPUs: 2, Slurm: SlurmOptions{
		ReturnToService: 1, SchedulerParameters: []string{"bf_interval=1"}, Cgroup: true,
		Set: map[string]string{"resumetimeout": "30", "KillWait": "", "DebugFlags": "Power", "Nothing": ""},
	}}
	text := slurmConf(o, ModeSingle)
	c := conf(t, o, ModeSingle)
	for k, v := range map[string]string{
		"ReturnToService": "1", "ResumeTimeout": "30", "DebugFlags": "Power", "SlurmUser": "alice",
		"ProctrackType":       "proctrack/cgroup",
		"TaskPlugin":          "task/cgroup",
		"PrologFlags":         "Alloc,DeferBatch,Contain",
		"SchedulerParameters": "batch_sched_delay=0,sched_min_interval=1,nohold_on_prolog_fail,bf_interval=1",
	} {
		if c[k] != v {
			t.Errorf("%s=%q, want %q", k, c[k], v)
		}
	}
	if _, ok := c["KillWait"]; ok {
		t.Error("a key set to nothing is still there")
	}
	for _, line := range []string{
		"NodeName=n3 NodeAddr=10.77.0.13 CPUs=2 RealMemory=768 ",
		"PartitionName=main Nodes=n[1-3] Default=YES ",
		"PartitionName=shared Nodes=n[1-3] OverSubscribe=FORCE:4 ",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

func TestSlurmConfWithTokens(t *testing.T) {
	for _, with := range []bool{false, true} {
		c := conf(t, Options{Nodes: 1, Memory: 512, CPUs: 1, Slurm: SlurmOptions{REST: with}}, ModeRoot)
		if got := c["AuthAltTypes"]; (got == "auth/jwt") != with {
			t.Errorf("with slurmrestd %t: AuthAltTypes=%s", with, got)
		}
	}
}
