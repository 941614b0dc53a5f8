// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Slurm 24.11 and later print keys with several values by number.
const newerConfig = `Configuration data as of 2026-11-24T12:00:00
Epilog[0]               = /etc/slurm/epilog.d/first
Epilog[1]               = /usr/libexec/kernel-broker/epilog
PrologEpilogTimeout     = 65534
PrologTimeout           = 720 sec
ResumeTimeout           = 60 sec
SchedulerParameters     = batch_sched_delay=0,nohold_on_prolog_fail
SLURM_VERSION           = 26.05.5
SlurmctldHost[0]        = front(10.99.0.1)
SlurmctldHost[1]        = back
TaskPluginParam         = (null)
PrologSlurmctld         =

Cgroup Support Configuration:
CgroupMountpoint        = /sys/fs/cgroup
Slurmctld(primary) at front is UP
`

func TestParseSlurmConfig(t *testing.T) {
	c := ParseSlurmConfig(newerConfig)
	for key, want := range map[string][]string{
		"epilog": {"/etc/slurm/epilog.d/first", "/usr/libexec/kernel-broker/epilog"}, "SlurmctldHost": {"front(10.99.0.1)", "back"},
		"TaskPluginParam": nil, "PrologSlurmctld": nil, "cgroupmountpoint": {"/sys/fs/cgroup"}, "none": nil,
	} {
		if got := c.Values(key); !slices.Equal(got, want) {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
	for word, want := range map[string]bool{"batch_sched_delay": true, "NOHOLD_on_prolog_fail": true, "nohold": false, "0": false, "": false} {
		if c.Has("SchedulerParameters", word) != want {
			t.Errorf("has %q is not %v", word, want)
		}
	}
	for key, want := range map[string]int{"PrologTimeout": 720, "ResumeTimeout": 60, "PrologEpilogTimeout": -1, "SlurmctldHost": -1, "none": -1} {
		if n, set := c.Seconds(key); set != (want >= 0) || set && n != want {
			t.Errorf("%s is %d, %v", key, n, set)
		}
	}
	if !c.AtLeast(25, 5) || !c.AtLeast(26, 5) || c.AtLeast(26, 11) || SlurmConfig(nil).AtLeast(1, 0) {
		t.Errorf("its version is %q", c.Value("SLURM_VERSION"))
	}
	if got := SlurmRelease(22<<16 + 5<<8 + 8); got != "22.05" {
		t.Errorf("a plugin's version is %s", got)
	}
}

func TestParsePlugstack(t *testing.T) {
	got := ParsePlugstack(`
# required /commented/kernel_profile.so
Include /etc/slurm/plugstack.conf.d/*
optional	x11.so	colour=blue # a comment
required /usr/lib/kernel-broker/kernel_profile.so snapshot=/s sys=/machine/sys
demanded /usr/lib/nonsense.so
required
`)
	want := []PlugstackLine{
		{"include", "/etc/slurm/plugstack.conf.d/*", []string{}, ""}, {"optional", "x11.so", []string{"colour=blue"}, ""},
		{"required", "/usr/lib/kernel-broker/kernel_profile.so", []string{"snapshot=/s", "sys=/machine/sys"}, ""},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if l := want[2]; !l.Ours() || l.Argument("snapshot") != "/s" || l.Argument("snap") != "" || want[0].Ours() || want[1].Ours() {
		t.Error("ours is not recognised")
	}
}

func TestParseJobSubmit(t *testing.T) {
	own, err := os.ReadFile("../../slurm-plugin/job_submit.lua")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]JobSubmit{
		string(own): {Ours: true, Submit: true, Modify: true},
		"":          {},
		"function slurm_job_submit(d, p, u) return slurm.SUCCESS end": {},
		`dofile("/usr/lib/kernel-broker/job_submit.lua")
function slurm_job_submit(d, p, u) return kernel_broker.submit(d, p, u) end
function slurm_job_modify(d, r, p, u) return kernel_broker.modify (d, r, p, u) end`: {Loads: "/usr/lib/kernel-broker/job_submit.lua", Submit: true, Modify: true},
		`dofile '/opt/kernel-broker/j.lua' -- return kernel_broker.submit(d)
--[[ kernel_broker.modify(d)
]]`: {Loads: "/opt/kernel-broker/j.lua"},
		`-- dofile("/usr/lib/kernel-broker/job_submit.lua")`: {},
	} {
		if got := ParseJobSubmit(text); got != want {
			t.Errorf("%.80q: %+v, want %+v", text, got, want)
		}
	}
}

func FuzzParseSlurmConfig(f *testing.F) {
	f.Add(newerConfig)
	f.Add(healthyConfig)
	f.Add("=\n[1]=x\nA[1]=(null)\nB=99999999999999999999 sec\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := ParseSlurmConfig(text)
		for key, values := range c {
			if key != strings.ToLower(key) || len(values) == 0 || slices.Contains(values, "") {
				t.Errorf("%q = %q", key, values)
			}
			if n, set := c.Seconds(key); n < 0 || !set && n != 0 {
				t.Errorf("%s is %d seconds, %v", key, n, set)
			}
		}
		c.AtLeast(25, 5)
		// The checks take whatever came in.
		s := healthy()
		s.Slurm = Known(c)
		for _, r := range Examine(s, nil) {
			for _, found := range r.Findings {
				if found.What == "" || found.Remedy == "" || found.Object == "" {
					t.Errorf("%+v", found)
				}
			}
		}
	})
}

func FuzzParsePlugstack(f *testing.F) {
	f.Add("required /usr/lib/kernel-broker/kernel_profile.so snapshot=/x\ninclude *\n")
	f.Add("OPTIONAL\tkernel_profile.so#x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, line := range ParsePlugstack(text) {
			if !slices.Contains([]string{"required", "optional", "include"}, line.Word) || line.Path == "" || strings.ContainsAny(line.Path, " \t\n#") {
				t.Errorf("%+v", line)
			}
		}
	})
}

func FuzzParseJobSubmit(f *testing.F) {
	f.Add(`dofile("/usr/lib/kernel-broker/job_submit.lua") kernel_broker.submit(`)
	f.Add("--[[ -- ]] function kernel_broker.submit(")
	f.Fuzz(func(t *testing.T, text string) {
		if j := ParseJobSubmit(text); j.Ours && !j.Submit || j.Loads != "" && !strings.Contains(j.Loads, "broker") {
			t.Errorf("%q: %+v", text, j)
		}
	})
}

func TestParseMoving(t *testing.T) {
	const text = "ReservationName=course StartTime=2026-11-26T10:00:00 Nodes=n[1-2] NodeCnt=2 Flags= TRES=cpu=8 Users=alice\n" +
		"ReservationName=fixed Nodes=n1 NodeCnt=1 Flags=IGNORE_JOBS,SPEC_NODES Users=root\n" +
		"ReservationName=static Nodes=n1 Flags=STATIC Users=root\n" +
		"ReservationName=ours Nodes=n3 Flags=DAILY,IGNORE_JOBS Users=root\nNo reservations in the system\n"
	if got := ParseMoving(text); !slices.Equal(got, []string{"course", "ours"}) {
		t.Errorf("%v", got)
	}
}

// One-line output of scontrol show partition, of Slurm 22.05 and 24.11.
func TestParsePartitions(t *testing.T) {
	const text = "PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE DisableRootJobs=NO " +
		"ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=n[1-2] PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=FORCE:4 State=UP\n" +
		"PartitionName=one Default=NO OverSubscribe=FORCE:1 State=UP\nPartitionName=yes Default=NO OverSubscribe=YES:4\n" +
		"PartitionName=plain Default=NO OverSubscribe=NO ExclusiveTopo=NO\nNo partitions in the system\n"
	want := []Partition{{"main", true, true}, {"one", false, false}, {"yes", false, false}, {"plain", false, false}}
	if got := ParsePartitions(text); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
