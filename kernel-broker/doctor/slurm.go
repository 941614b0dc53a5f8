// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const sample = "see docs/ops/slurm.conf.sample"

func slurmChecks() []check {
	return []check{
		{"slurm-answers", "slurmctld answers", slurmAnswers},
		{"reboot-program", "RebootProgram is Kernel Broker's", hook("RebootProgram", "reboot", "Slurm drops a job's request for a boot and requeues the job each time")},
		{"reboot-from-controller", "slurmctld itself runs RebootProgram", word("SlurmctldParameters", "reboot_from_controller", Error,
			"slurmctld asks the node's slurmd to reboot; a node whose slurmd does not run never returns")},
		{"prolog-slurmctld", "PrologSlurmctld is Kernel Broker's", hook("PrologSlurmctld", "prolog-slurmctld", "no node boots for a job, and the gate refuses it")},
		{"epilog-slurmctld", "EpilogSlurmctld is Kernel Broker's", hook("EpilogSlurmctld", "epilog-slurmctld", "the broker learns late that a job has ended")},
		{"epilog", "Epilog on the nodes is Kernel Broker's", hook("Epilog", "epilog", "each job boots its nodes, also those that could be kept")},
		{"prolog-flags", "PrologFlags has Alloc and DeferBatch", prologFlags},
		{"hold-on-prolog-fail", "a refused job is requeued, not held", holdOnPrologFail},
		{"job-requeue", "JobRequeue lets a job be requeued", jobRequeue},
		{"resume-timeout", "ResumeTimeout is long enough for the kernels' boots", resumeTimeout},
		{"prolog-timeout", "PrologEpilogTimeout is above ResumeTimeout and prolog_limit", prologTimeout},
		{"job-submit-plugin", "JobSubmitPlugins has lua", word("JobSubmitPlugins", "lua", Error, "a job with --kernel-profile asks for no boot, and the gate refuses it")},
		{"job-submit-script", "job_submit.lua is Kernel Broker's or calls it", jobSubmitScript},
		{"slurm-user", "SlurmUser can open what slurmctld and its hooks need", slurmUser},
		{"default-partition", "the default partition shares no nodes", defaultPartition},
		{"job-cgroups", "Slurm keeps jobs in cgroups of version 2, for profiling runs", jobCgroups},
		{"plugstack", "plugstack.conf requires the plugin", plugstack},
		{"plugin-version", "the plugin fits this host's Slurm", pluginVersion},
		{"snapshot", "the catalog's snapshot is here and fresh", snapshot},
		{"accounts-enforced", "accounts that the policy names are enforced", accountsEnforced},
		{"reservations", "reservations keep their nodes", reservations},
		{"system-cores", "Slurm counts without the system cores", systemCores},
	}
}

func slurmAnswers(e *examination) {
	a, ok := need(e, e.Slurmctld)
	if ok && a.Error != "" {
		e.wrong("slurmctld", "it does not answer: "+a.Error, "start slurmctld, or correct slurm.conf and munge on this host (scontrol ping)")
	}
}

func reservations(e *examination) {
	moving, ok := need(e, e.Moving)
	if !ok {
		return
	}
	for _, name := range moving {
		e.warn(name, "Slurm chooses the reservation's nodes, and replaces those that a job with a kernel profile runs on: it wanders through the cluster",
			"make it again with nodes=, or with flags=STATIC_ALLOC (docs/ops/slurm-matrix.md)")
	}
}

// word checks that a list of slurm.conf has a word.
func word(key, want string, severity Severity, without string) func(*examination) {
	return func(e *examination) {
		if c, ok := need(e, e.Slurm); ok && !c.Has(key, want) {
			e.add(severity, key, fmt.Sprintf("%s lacks %s: %s", key, want, without), fmt.Sprintf("add %s to %s in slurm.conf; %s", want, key, sample))
			e.lacksWord(key, want)
		}
	}
}

// hook checks a program that Slurm runs: that it is set, and where this host runs it, that it is ours.
func hook(key, name, without string) func(*examination) {
	remedy := fmt.Sprintf("set %s=/usr/libexec/kernel-broker/%s in slurm.conf, or call it from the site's own program and pass on the exit code", key, name)
	return func(e *examination) {
		c, ok := need(e, e.Slurm)
		if !ok {
			return
		}
		if len(c.Values(key)) == 0 {
			e.wrong(key, key+" is not set: "+without, remedy)
			e.lacks(SlurmFile, key, "/usr/libexec/kernel-broker/"+name)
			return
		}
		programs, ok := need(e, e.Programs[key])
		if !ok {
			return
		}
		ours := false
		for _, p := range programs {
			switch p.Is {
			case ProgramMissing:
				e.wrong(key, fmt.Sprintf("%s is not on this host: %s", p.Path, without), "install Kernel Broker here, or correct "+key+" in slurm.conf")
				return
			case ProgramNotExecutable:
				e.wrong(key, fmt.Sprintf("%s cannot be executed: %s", p.Path, without), "chmod 755 "+p.Path)
				return
			case ProgramOurs, ProgramCallsOurs:
				ours = true
			case ProgramOther:
			}
		}
		if !ours {
			e.wrong(key, fmt.Sprintf("%s neither is Kernel Broker's nor names it: %s", paths(programs), without), remedy)
		}
	}
}

func paths(programs []Program) string {
	var list []string
	for _, p := range programs {
		list = append(list, p.Path)
	}
	return strings.Join(list, ", ")
}

func prologFlags(e *examination) {
	c, ok := need(e, e.Slurm)
	if !ok {
		return
	}
	for _, f := range []struct{ flag, without string }{
		{"Alloc", "the gate does not run before the job"}, {"DeferBatch", "a batch script may start before the switch"},
	} {
		if flag := f.flag; !c.Has("PrologFlags", flag) {
			e.wrong(flag, "PrologFlags lacks "+flag+": "+f.without, "add "+flag+" to PrologFlags in slurm.conf; "+sample)
			e.lacksWord("PrologFlags", flag)
		}
	}
}

func holdOnPrologFail(e *examination) {
	c, ok := need(e, e.Slurm)
	if !ok {
		return
	}
	words := []string{"nohold_on_prolog_fail"}
	if c.AtLeast(25, 5) {
		words = append(words, "requeue_on_resume_failure")
	}
	for _, w := range words {
		if !c.Has("SchedulerParameters", w) {
			e.warn(w, "SchedulerParameters lacks "+w+": a job whose node fails is held or ended, not requeued", "add "+w+" to SchedulerParameters in slurm.conf; "+sample)
			e.lacksWord("SchedulerParameters", w)
		}
	}
}

func jobRequeue(e *examination) {
	if c, ok := need(e, e.Slurm); ok && c.Value("JobRequeue") == "0" {
		e.warn("JobRequeue", "JobRequeue is 0: a plain job on a node that cannot return ends instead of being requeued", "set JobRequeue=1 in slurm.conf")
		e.lacks(SlurmFile, "JobRequeue", "1")
	}
}

// defaultLoadLimit is broker.yaml's default for switch.load_limit.
const defaultLoadLimit = 2 * time.Minute

// resumeTimeout compares with the slowest profile: fetching, loading and every try of its boot.
func resumeTimeout(e *examination) {
	c, ok := need(e, e.Slurm)
	if !ok {
		return
	}
	profiles, ok := need(e, e.Profiles)
	if !ok {
		return
	}
	load := defaultLoadLimit
	if f := e.BrokerFile.Value; f != nil && f.LoadLimit > 0 {
		load = f.LoadLimit
	}
	var longest time.Duration
	slowest := ""
	for _, p := range profiles {
		if p.Name == kb.StockProfile || p.Retired() {
			continue
		}
		if d := load + time.Duration(p.BootAttempts)*p.BootTimeout; d > longest {
			longest, slowest = d, p.Name
		}
	}
	if have, set := c.Seconds("ResumeTimeout"); set && time.Duration(have)*time.Second < longest {
		e.warn("ResumeTimeout", fmt.Sprintf("ResumeTimeout is %d s; the switch to %s may take %.0f s (loading and every boot), and Slurm sets a slower node down", have, slowest, longest.Seconds()),
			fmt.Sprintf("set ResumeTimeout=%.0f or more in slurm.conf, or lower boot_timeout and boot_attempts of the profile", longest.Seconds()))
	}
}

func prologTimeout(e *examination) {
	c, ok := need(e, e.Slurm)
	if !ok {
		return
	}
	for _, key := range []string{"PrologEpilogTimeout", "PrologTimeout"} {
		limit, set := c.Seconds(key)
		if !set {
			continue // unlimited
		}
		if resume, set := c.Seconds("ResumeTimeout"); set && limit <= resume {
			e.wrong(key, fmt.Sprintf("%s (%d s) is not above ResumeTimeout (%d s): Slurm kills a prolog that waits for its nodes", key, limit, resume),
				fmt.Sprintf("set %s above ResumeTimeout and above prolog_limit of client.yaml", key))
			continue
		}
		if f := e.Client.Value; f != nil && f.PrologLimit >= time.Duration(limit)*time.Second {
			e.wrong(key, fmt.Sprintf("%s (%d s) is not above prolog_limit of client.yaml (%v): Slurm kills a prolog without its reason", key, limit, f.PrologLimit),
				"raise "+key+" in slurm.conf, or lower prolog_limit")
		}
	}
}

func accountsEnforced(e *examination) {
	c, ok := need(e, e.Slurm)
	if !ok {
		return
	}
	f, ok := need(e, e.BrokerFile)
	if ok && f.Error != "" {
		e.skip(f.Path + " cannot be read")
		return
	}
	if ok && len(f.Accounts) > 0 && !c.Has("AccountingStorageEnforce", "associations") && !c.Has("AccountingStorageEnforce", "all") {
		e.wrong("AccountingStorageEnforce", fmt.Sprintf("the policy names the accounts %s, and Slurm lets a user name any account", names(f.Accounts)), "add associations to AccountingStorageEnforce in slurm.conf")
	}
}

func systemCores(e *examination) {
	c, ok := need(e, e.Slurm)
	if !ok {
		return
	}
	profiles, ok := need(e, e.Profiles)
	if !ok {
		return
	}
	var with []string
	for v := range usable(profiles) {
		if v.Kernel.SystemCores > 0 {
			with = append(with, v.Kernel.Ref().String())
		}
	}
	if len(with) == 0 {
		return
	}
	if !c.Has("SchedulerParameters", "spec_cores_first") {
		e.warn("SchedulerParameters", "it lacks spec_cores_first, and "+names(with)+" keep cores for the system: tasks share the application's cores", "add spec_cores_first, and CoreSpecCount to the nodes; docs/ops/cores.md")
	}
	if c.Has("TaskPluginParam", "SlurmdOffSpec") {
		e.wrong("TaskPluginParam", "SlurmdOffSpec moves slurmd off the system cores, onto those of the jobs on "+names(with), "remove SlurmdOffSpec from TaskPluginParam")
	}
}

func defaultPartition(e *examination) {
	partitions, ok := need(e, e.Partitions)
	if !ok {
		return
	}
	for _, p := range partitions {
		if p.Default && p.Shares {
			e.wrong(p.Name, "it is the default partition and has OverSubscribe=FORCE: sbatch --kernel-profile without --partition is refused, since jobs cannot share a kernel",
				"set OverSubscribe=NO (or EXCLUSIVE, YES) for it in slurm.conf, or make another partition the default; users otherwise name one with --partition")
		}
	}
}

// jobCgroups looks at what the agents' collectors need of Slurm.
func jobCgroups(e *examination) {
	c, ok := need(e, e.Slurm)
	if !ok {
		return
	}
	const without = ": a job's processes are in no cgroup of version 2, and profiling runs have no result"
	if v := c.Value("ProctrackType"); v != "proctrack/cgroup" {
		e.warn("ProctrackType", "ProctrackType is "+cmp.Or(v, "not set")+without, "set ProctrackType=proctrack/cgroup in slurm.conf; docs/ops/profiling.md")
		e.lacks(SlurmFile, "ProctrackType", "proctrack/cgroup")
	}
	if v := c.Value("CgroupPlugin"); v == "cgroup/v1" || v == "disabled" {
		e.warn("CgroupPlugin", "CgroupPlugin is "+v+without, "set CgroupPlugin=autodetect (or cgroup/v2) in cgroup.conf, and boot nodes with systemd.unified_cgroup_hierarchy=1 where they are older; docs/ops/profiling.md")
		e.lacks(CgroupFile, "CgroupPlugin", "autodetect")
	}
}

// uses are what SlurmUser opens a file for: what it cannot do, what follows, and the mode that it lacks.
var uses = map[Use]struct{ cannot, without, mode string }{
	UseSettings: {"read", "Slurm's hooks have no settings, and jobs with a profile wait or are held", "g+r"},
	UseScript:   {"read", "slurmctld refuses every job", "g+r"},
	UseProgram:  {"execute", "slurmctld cannot run it, and jobs with a profile do not start", "g+rx"},
}

func slurmUser(e *examination) {
	u, ok := need(e, e.SlurmUser)
	if !ok {
		return
	}
	for _, f := range u.Closed {
		use := uses[f.Use]
		e.wrong(f.Path, fmt.Sprintf("user %s cannot %s it: %s", u.Name, use.cannot, use.without),
			fmt.Sprintf("chgrp %s %s && chmod %s %s; namei -l %s shows a folder that is closed", u.Group, f.Path, use.mode, f.Path, f.Path))
	}
}
