// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// fault changes one fact of a healthy site.
type fault struct {
	seed func(*Site)
	// The finding: its check, object, and words of what and remedy.
	check, object string
	severity      Severity
	what, remedy  string
}

// conf replaces the line of a key in slurm.conf; an empty value removes it.
func conf(key, value string) func(*Site) {
	return func(s *Site) {
		c := *s.Slurm.Value
		delete(c, strings.ToLower(key))
		if value != "" {
			c[strings.ToLower(key)] = []string{value}
		}
	}
}

func program(key string, is ProgramIs) func(*Site) {
	return func(s *Site) { (*s.Programs[key].Value)[0].Is = is }
}

func agent(change func(*Agent)) func(*Site) { return func(s *Site) { change(s.Agent.Value) } }

// version changes mitgcm's version i.
func version(i int, change func(*kb.ProfileVersion)) func(*Site) {
	return func(s *Site) { change(&(*s.Profiles.Value)[1].Versions[i]) }
}

func plugstackText(text string) func(*Site) {
	return func(s *Site) { s.Plugstack.Value.Lines = ParsePlugstack(text) }
}

func old(days int) Certificate {
	return Certificate{From: noon.AddDate(0, 0, days-30), Until: noon.AddDate(0, 0, days)}
}

func closed(path string, use Use) func(*Site) {
	return func(s *Site) { s.SlurmUser.Value.Closed = []ClosedFile{{path, use}} }
}

var faults = map[string]fault{
	"slurmctld is away":                 {func(s *Site) { s.Slurmctld.Value.Error = "Unable to contact slurm controller" }, "slurm-answers", "slurmctld", Error, "Unable to contact", "start slurmctld"},
	"no RebootProgram":                  {conf("RebootProgram", ""), "reboot-program", "RebootProgram", Error, "not set", "RebootProgram=/usr/libexec/kernel-broker/reboot"},
	"a RebootProgram of the site's":     {program("RebootProgram", ProgramOther), "reboot-program", "RebootProgram", Error, "neither is Kernel Broker's", "call it from"},
	"the node's slurmd reboots":         {conf("SlurmctldParameters", "enable_configless"), "reboot-from-controller", "SlurmctldParameters", Error, "never returns", "add reboot_from_controller"},
	"PrologSlurmctld is missing":        {program("PrologSlurmctld", ProgramMissing), "prolog-slurmctld", "PrologSlurmctld", Error, "not on this host", "install Kernel Broker"},
	"EpilogSlurmctld has lost its mode": {program("EpilogSlurmctld", ProgramNotExecutable), "epilog-slurmctld", "EpilogSlurmctld", Error, "cannot be executed", "chmod 755"},
	"no Epilog":                         {conf("Epilog", ""), "epilog", "Epilog", Error, "not set", "Epilog=/usr/libexec/kernel-broker/epilog"},
	"PrologFlags without Alloc":         {conf("PrologFlags", "DeferBatch,Contain"), "prolog-flags", "Alloc", Error, "gate does not run", "add Alloc"},
	"PrologFlags without DeferBatch":    {conf("PrologFlags", "Alloc"), "prolog-flags", "DeferBatch", Error, "before the switch", "add DeferBatch"},
	"refused jobs are held":             {conf("SchedulerParameters", "spec_cores_first"), "hold-on-prolog-fail", "nohold_on_prolog_fail", Warning, "held", "add nohold_on_prolog_fail"},
	"25.05 without its own word": {func(s *Site) {
		conf("SLURM_VERSION", "25.05.1")(s)
		s.Plugin.Value.Slurm, s.Plugin.Value.Installed = "25.05", "25.05"
	}, "hold-on-prolog-fail", "requeue_on_resume_failure", Warning, "not requeued", "add requeue_on_resume_failure"},
	"jobs are not requeued":             {conf("JobRequeue", "0"), "job-requeue", "JobRequeue", Warning, "ends instead", "JobRequeue=1"},
	"Slurm's own ResumeTimeout":         {conf("ResumeTimeout", "60 sec"), "resume-timeout", "ResumeTimeout", Warning, "60 s; the switch to", "ResumeTimeout=360"},
	"a prolog ends before its nodes":    {conf("PrologEpilogTimeout", "600"), "prolog-timeout", "PrologEpilogTimeout", Error, "not above ResumeTimeout", "prolog_limit of client.yaml"},
	"a prolog ends before prolog_limit": {func(s *Site) { s.Client.Value.PrologLimit = 720 * time.Second }, "prolog-timeout", "PrologEpilogTimeout", Error, "without its reason", "lower prolog_limit"},
	"no job_submit plugin":              {conf("JobSubmitPlugins", "all_partitions"), "job-submit-plugin", "JobSubmitPlugins", Error, "asks for no boot", "add lua"},
	"a job_submit.lua of the site's":    {func(s *Site) { *s.JobSubmit.Value = JobSubmit{Path: "j.lua"} }, "job-submit-script", "j.lua", Error, "does not load", "dofile"},
	"job_submit.lua is missing":         {func(s *Site) { s.JobSubmit.Value.Error = "no such file" }, "job-submit-script", "/etc/slurm/job_submit.lua", Error, "refuses every job", "copy"},
	"ours is loaded from nowhere": {func(s *Site) {
		*s.JobSubmit.Value = JobSubmit{Path: "j.lua", Loads: "/x/kernel-broker/j.lua", Missing: true, Submit: true, Modify: true}
	}, "job-submit-script", "j.lua", Error, "not there", "correct the path"},
	"ours is loaded and not called": {func(s *Site) {
		*s.JobSubmit.Value = JobSubmit{Path: "j.lua", Loads: "/x/kernel-broker/j.lua", Modify: true}
	}, "job-submit-script", "j.lua", Error, "kernel_broker.submit", "call its functions"},
	"ours is not called for a change": {func(s *Site) {
		*s.JobSubmit.Value = JobSubmit{Path: "j.lua", Loads: "/x/kernel-broker/j.lua", Submit: true}
	}, "job-submit-script", "j.lua", Warning, "kernel_broker.modify", "call its functions"},
	"an optional plugin":                  {plugstackText("optional /usr/lib/kernel-broker/kernel_profile.so\n"), "plugstack", "/etc/slurm/plugstack.conf", Error, "ignores what it says", "write required"},
	"no plugin":                           {plugstackText("required /usr/lib/slurm/other.so\n"), "plugstack", "/etc/slurm/plugstack.conf", Error, "does not name the plugin", "add the line"},
	"no plugstack.conf":                   {func(s *Site) { s.Plugstack.Value.Error = "no such file" }, "plugstack", "/etc/slurm/plugstack.conf", Error, "no such file", "add the line"},
	"a plugin for another Slurm":          {func(s *Site) { s.Plugin.Value.Installed = "24.11" }, "plugin-version", "/usr/lib/kernel-broker/kernel_profile.so", Error, "compiled for Slurm 22.05, and this host has 24.11", "Slurm 24.11"},
	"the plugin's file is missing":        {func(s *Site) { s.Plugin.Value.Error = "no such file" }, "plugin-version", "/usr/lib/kernel-broker/kernel_profile.so", Error, "cannot be loaded", "install the plugin"},
	"no snapshot":                         {func(s *Site) { s.Snapshot.Value.Error = "no such file" }, "snapshot", "/var/lib/kernel-broker/catalog.snapshot", Warning, "misspelt", "copy catalog.snapshot"},
	"an old snapshot":                     {func(s *Site) { s.Snapshot.Value.Stale = true }, "snapshot", "/var/lib/kernel-broker/catalog.snapshot", Warning, "differs", "copy it again"},
	"accounts that nobody enforces":       {conf("AccountingStorageEnforce", "none"), "accounts-enforced", "AccountingStorageEnforce", Error, "climate", "add associations"},
	"a reservation that wanders":          {func(s *Site) { s.Moving = Known([]string{"course"}) }, "reservations", "course", Warning, "wanders", "STATIC_ALLOC"},
	"Slurm counts the system cores":       {conf("SchedulerParameters", "nohold_on_prolog_fail"), "system-cores", "SchedulerParameters", Warning, "cores@1", "spec_cores_first"},
	"slurmd leaves the system cores":      {conf("TaskPluginParam", "SlurmdOffSpec"), "system-cores", "TaskPluginParam", Error, "cores@1", "remove SlurmdOffSpec"},
	"client.yaml is wrong":                {func(s *Site) { s.Client.Value.Error = "client.yaml: line 3: unknown key" }, "client-file", "/etc/kernel-broker/client.yaml", Error, "line 3", "client.yaml.sample"},
	"hooks cannot count":                  {func(s *Site) { s.Client.Value.Counters = Known("user slurm cannot write in /x") }, "hook-counters", "/etc/kernel-broker/client.yaml", Warning, "Slurm's count of restarts", "install -d"},
	"broker.yaml is wrong":                {func(s *Site) { s.BrokerFile.Value.Error = "line 7" }, "broker-file", "/etc/kernel-broker/broker.yaml", Error, "line 7", "kernel-broker --check"},
	"the broker is away":                  {func(s *Site) { s.Broker.Value.Error = "connection refused" }, "broker-answers", "unix:///run/b.sock", Error, "refused", "systemctl status kernel-broker"},
	"the broker's etcd is away":           {func(s *Site) { s.Health.Value.Ill = map[string]string{"store": "no leader"} }, "broker-health", "store", Error, "no leader", "troubleshooting"},
	"a firewall before the port":          {func(s *Site) { s.Port.Value.Error = "i/o timeout" }, "agent-port", "front:7440", Error, "timeout", "firewall"},
	"TLS is off":                          {func(s *Site) { s.BrokerFile.Value.TLS = "none" }, "tls", "/etc/kernel-broker/broker.yaml", Warning, "TLS is off", "docs/ops/trust.md"},
	"TLS is off on a node":                {agent(func(a *Agent) { a.TLS = "none" }), "tls", "/etc/kernel-broker/agent.yaml", Warning, "TLS is off", "agent.yaml"},
	"TLS is off on a login node":          {func(s *Site) { s.Client.Value.Local, s.Client.Value.TLS = false, false }, "tls", "/etc/kernel-broker/client.yaml", Warning, "not authenticated", "authority show"},
	"another kernelctl":                   {func(s *Site) { s.Version = "0.9" }, "versions", "front", Warning, "kernelctl is 0.9", "same version"},
	"an old agent":                        {func(s *Site) { (*s.Nodes.Value)[2].AgentVersion = "0.1.0" }, "versions", "n3", Warning, "0.1.0", "on the nodes"},
	"a name in the policy with a typo":    {func(s *Site) { s.Health.Value.Warned = map[string]string{"policy": "no profile mitgmc"} }, "broker-health", "policy", Warning, "no profile mitgmc", "troubleshooting"},
	"a clock that is late":                {func(s *Site) { *s.Health.Value.Ahead = time.Minute }, "clocks", "front", Error, "1m0s ahead", "synchronise"},
	"a clock that is early":               {func(s *Site) { *s.Health.Value.Ahead = -6 * time.Second }, "clocks", "front", Error, "-6s ahead", "synchronise"},
	"the broker's certificate ends soon":  {func(s *Site) { *s.Port.Value.Certificate = old(2) }, "broker-certificate", "front:7440", Warning, "ends on 2026-11-26", "restart the broker"},
	"the broker's certificate has ended":  {func(s *Site) { *s.Port.Value.Certificate = old(-1) }, "broker-certificate", "front:7440", Error, "ended on 2026-11-23", "renew"},
	"the authority ends soon":             {func(s *Site) { (*s.Authorities.Value)[0].Until = noon.AddDate(0, 1, 0) }, "broker-certificate", "authority", Warning, "2026-12-24", "authority rotate"},
	"a node does not renew":               {func(s *Site) { (*s.Certificates.Value)["n3"] = []Certificate{old(3)} }, "node-certificates", "n3", Warning, "not renewed", "node token"},
	"a node's certificate has ended":      {func(s *Site) { (*s.Certificates.Value)["n3"] = []Certificate{old(-3)} }, "node-certificates", "n3", Error, "ended on", "node token"},
	"a node without a certificate":        {func(s *Site) { (*s.Certificates.Value)["n3"] = nil }, "node-certificates", "n3", Error, "cannot connect", "node token"},
	"the store of kernels is full":        {func(s *Site) { s.Artifacts.Value.Used = 60 << 30 }, "artifact-room", "artifacts", Warning, "61440 of 65536 MiB", "artifact gc"},
	"etcd is nearly full":                 {func(s *Site) { s.Database.Value.Used = 500 << 20 }, "database-room", "db", Warning, "500 of 512 MiB", "keep_jobs"},
	"a disk is nearly full":               {func(s *Site) { (*s.Disks.Value)[0].Free = 1 << 30 }, "disk-room", "/var/lib/kernel-broker", Warning, "1024 MiB are free", "make room"},
	"no stock kernel":                     {func(s *Site) { *s.Profiles.Value = (*s.Profiles.Value)[1:] }, "stock", "stock", Error, "can return", "kernel-factory distribution"},
	"a quarantined kernel":                {version(1, func(v *kb.ProfileVersion) { v.Quarantine = &kb.Quarantine{Reason: "panics"} }), "quarantine", "mitgcm@2", Warning, "panics", "profile release mitgcm@2"},
	"a retired default version":           {version(0, func(v *kb.ProfileVersion) { v.Retired = &kb.Retirement{} }), "default-version", "mitgcm", Error, "retired", "profile promote"},
	"a default version that fits nowhere": {version(0, func(v *kb.ProfileVersion) { v.Kernel.Drivers = nil }), "boots-somewhere", "mitgcm@1", Error, "no driver virtio_net", "recipe"},
	"a kernel without a node's driver":    {func(s *Site) { (*s.Nodes.Value)[1].Inventory.Drivers = []string{"mlx5_core"} }, "fits-nodes", "*", Warning, "n2: has no driver mlx5_core", "docs/ops/hardware.md"},
	"arguments that are ignored": {func(s *Site) {
		s.Ignored[kb.Ref{Profile: "cores", Version: 1}] = Known(`the kernel ignores "nohz_full"`)
	}, "ignored-arguments", "cores@1", Warning, "nohz_full", "recipe"},
	"a kernel without a signature":    {version(1, func(v *kb.ProfileVersion) { v.Envelope = nil }), "signatures", "mitgcm@2", Error, "no signature", "kernel sign mitgcm@2"},
	"a node without an agent":         {func(s *Site) { (*s.SlurmNodes.Value)["n4"] = kb.SlurmNode{Name: "n4"} }, "nodes-without-agent", "n4", Warning, "no agent has ever connected", "install kernel-broker-agent"},
	"a node that Slurm does not know": {func(s *Site) { delete(*s.SlurmNodes.Value, "n3") }, "nodes-unknown-to-slurm", "n3", Warning, "Slurm does not", "NodeName"},
	"a node that left with its certificate": {func(s *Site) {
		delete(*s.SlurmNodes.Value, "n3")
		(*s.Nodes.Value)[2].Connected = false
	}, "nodes-unknown-to-slurm", "n3", Warning, "its certificate is good", "kernelctl node revoke n3, if"},
	"a revoked node that Slurm still has": {func(s *Site) {
		(*s.Nodes.Value)[2].Connected = false
		delete(*s.Certificates.Value, "n3")
		s.Revoked = []string{"n3"}
	}, "agents-away", "n3", Warning, "was revoked", "kernelctl node token n3"},
	"an agent is away":              {func(s *Site) { (*s.Nodes.Value)[2].Connected = false }, "agents-away", "n3", Error, "not connected", "systemctl status"},
	"a node failed":                 {func(s *Site) { (*s.Nodes.Value)[2].Phase, (*s.Nodes.Value)[2].Cause = "failed", "its disk is full" }, "failed-nodes", "n3", Error, "its disk is full", "state=resume"},
	"a node runs it knows not what": {func(s *Site) { (*s.Nodes.Value)[2].Phase = "unproven" }, "failed-nodes", "n3", Warning, "not proven", "node show n3"},
	"agent.yaml is wrong":           {agent(func(a *Agent) { a.Error = "line 2" }), "agent-file", "/etc/kernel-broker/agent.yaml", Error, "line 2", "--check"},
	"the agent has another name":    {agent(func(a *Agent) { a.Node = "node1" }), "agent-file", "/etc/kernel-broker/agent.yaml", Error, `"node1" is not a NodeName`, "set node"},
	"the agent does not run":        {agent(func(a *Agent) { a.Answers = "no such socket" }), "agent-answers", "n1", Error, "no such socket", "enable --now"},
	"the agent has no broker":       {agent(func(a *Agent) { a.NotConnected = true }), "agent-answers", "n1", Error, "no connection", "firewall"},
	"no kexec-tools":                {agent(func(a *Agent) { a.Kexec.Is = ProgramMissing }), "kexec", "n1", Error, "/usr/sbin/kexec is missing", "kexec-tools"},
	"kexec is switched off":         {agent(func(a *Agent) { a.NoKexec = "kexec is switched off" }), "kexec", "n1", Error, "switched off", "sysctl"},
	"systemd starts slurmd":         {agent(func(a *Agent) { a.UnitEnabled = true }), "slurmd-unit", "n1", Error, "enabled", "systemctl disable slurmd"},
	"slurmd does not wait":          {agent(func(a *Agent) { a.DropIn = false }), "slurmd-unit", "n1", Error, "does not wait", "slurmd.service.d"},
	"slurmd always has -b":          {agent(func(a *Agent) { a.Reports = "/etc/default/slurmd" }), "slurmd-options", "/etc/default/slurmd", Error, "-b at every start", "remove -b"},
	"the node's own certificate":    {agent(func(a *Agent) { a.Certificate = Known(old(3)) }), "node-certificates", "n1", Warning, "not renewed", "node token"},
	"SlurmUser cannot read client.yaml": {closed("/etc/kernel-broker/client.yaml", UseSettings), "slurm-user", "/etc/kernel-broker/client.yaml", Error,
		"user slurm cannot read it: Slurm's hooks have no settings, and jobs with a profile wait", "chgrp slurm /etc/kernel-broker/client.yaml && chmod g+r /etc/kernel-broker/client.yaml; namei -l"},
	"SlurmUser cannot read job_submit.lua": {closed("/etc/slurm/job_submit.lua", UseScript), "slurm-user", "/etc/slurm/job_submit.lua", Error, "cannot read it: slurmctld refuses every job", "chmod g+r"},
	"SlurmUser cannot run a hook":          {closed("/opt/reboot", UseProgram), "slurm-user", "/opt/reboot", Error, "cannot execute it", "chmod g+rx /opt/reboot"},
	"the default partition shares nodes":   {func(s *Site) { (*s.Partitions.Value)[0].Shares = true }, "default-partition", "main", Error, "without --partition is refused", "OverSubscribe=NO"},
	"jobs have no cgroup":                  {conf("ProctrackType", "proctrack/linuxproc"), "job-cgroups", "ProctrackType", Warning, "profiling runs have no result", "ProctrackType=proctrack/cgroup"},
	"cgroups of version 1":                 {conf("CgroupPlugin", "cgroup/v1"), "job-cgroups", "CgroupPlugin", Warning, "CgroupPlugin is cgroup/v1", "CgroupPlugin=autodetect"},
	"a plugin that is named twice": {func(s *Site) {
		s.Plugstack.Value.Lines = append(s.Plugstack.Value.Lines, PlugstackLine{Word: "required", Path: "kernel_profile.so", File: "/etc/slurm/plugstack.conf.d/kb.conf"})
	}, "plugstack", "/etc/slurm/plugstack.conf", Warning, "names the plugin 2 times (in /etc/slurm/plugstack.conf, /etc/slurm/plugstack.conf.d/kb.conf)", "keep one line"},
	"a snapshot that users cannot read": {func(s *Site) { s.Snapshot.Value.Closed = "users cannot read it" }, "snapshot", "/var/lib/kernel-broker/catalog.snapshot", Warning, "users cannot read it: each submission", "chmod a+r /var/lib"},
	"a program of client.yaml that is missing": {func(s *Site) {
		s.Client.Value.Commands = []Command{{"reboot_program", "/x: no such file or directory"}}
	}, "client-file", "/etc/kernel-broker/client.yaml", Error,
		"reboot_program: /x: no such file or directory", "correct reboot_program in /etc/kernel-broker/client.yaml"},
	"client.yaml of another cluster": {func(s *Site) { s.Client.Value.Cluster = "test" }, "cluster", "cluster", Error,
		`/etc/kernel-broker/broker.yaml says "lab", the broker's certificate says "lab", /etc/kernel-broker/client.yaml says "test"`, "set the same cluster in broker.yaml and in client.yaml"},
	"a broker of another cluster": {func(s *Site) {
		s.Broker.Value.Error = `transport: authentication handshake failed: the server is kernel-broker://lab/broker/front and not a broker of cluster "test"`
	}, "broker-answers", "unix:///run/b.sock", Error, "kernel-broker://lab/broker/front", "set cluster of client.yaml"},
	"a credential for another cluster": {func(s *Site) {
		s.Broker.Value.Error = `credential says "test", this is the broker of "lab" (cluster in client.yaml and broker.yaml)`
	}, "broker-answers", "unix:///run/b.sock", Error, "credential says", "set cluster of client.yaml"},
	"another cluster's authority": {func(s *Site) { s.Broker.Value.Error = "x509: certificate signed by unknown authority" }, "broker-answers", "unix:///run/b.sock", Error, "unknown authority", "kernelctl setup client --fingerprint"},
	"broker.yaml was edited": {func(s *Site) {
		s.Health.Value.Ill = map[string]string{"configuration": "/etc/kernel-broker/broker.yaml was edited and is not in force"}
	}, "broker-health", "configuration", Error, "edited and is not in force", "systemctl restart kernel-broker"},
	"policy.yaml was edited": {func(s *Site) {
		s.Health.Value.Ill = map[string]string{"policy": "/etc/kernel-broker/policy.yaml was edited and is not in force"}
	}, "broker-health", "policy", Error, "edited and is not in force", "systemctl reload kernel-broker"},
	"a reset_command that does not exist": {func(s *Site) {
		s.Health.Value.Ill = map[string]string{"reset-command": "reset command: no such file"}
	}, "broker-health", "reset-command", Error, "no such file", "correct reset_command"},
	"broker.yaml was edited, as the broker warns": {func(s *Site) {
		s.Health.Value.Warned = map[string]string{"configuration": "/etc/kernel-broker/broker.yaml was edited and is not in force"}
	}, "broker-health", "configuration", Warning, "edited and is not in force", "systemctl restart kernel-broker"},
	"policy.yaml was edited, as the broker warns": {func(s *Site) {
		s.Health.Value.Warned = map[string]string{"policy": "/etc/kernel-broker/policy.yaml was edited and is not in force"}
	}, "broker-health", "policy", Warning, "edited and is not in force", "systemctl reload kernel-broker"},
	"a reset_command that does not exist, as the broker warns": {func(s *Site) {
		s.Health.Value.Warned = map[string]string{"reset-command": "reset command: no such file"}
	}, "broker-health", "reset-command", Warning, "no such file", "correct reset_command"},
	"agent.yaml was edited":                   {agent(func(a *Agent) { a.Edited = true }), "agent-file", "/etc/kernel-broker/agent.yaml", Warning, "was edited", "systemctl restart kernel-broker-agent"},
	"a program of agent.yaml that is missing": {agent(func(a *Agent) { a.Commands = []Command{{"kexec.before", "/x: permission denied"}} }), "agent-file", "/etc/kernel-broker/agent.yaml", Error, "kexec.before: /x: permission denied", "correct kexec.before"},
	"no panic= on the command line":           {agent(func(a *Agent) { a.NoPanic = "the kernel command line has no panic=" }), "panic", "n1", Warning, "hangs until somebody resets", "panic=10"},
	"no cgroup2 for the collectors":           {agent(func(a *Agent) { a.NoCgroup2 = "no folder of profiling.cgroups" }), "collector-cgroups", "n1", Warning, "no result from this node", "systemd.unified_cgroup_hierarchy=1"},
}

// Each fault gives its finding and no other.
func TestFaults(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			f.seed(s)
			var found []Finding
			for _, r := range Examine(s, nil) {
				found = append(found, r.Findings...)
			}
			if len(found) == 0 {
				t.Fatal("not found")
			}
			for _, got := range found {
				if got.Check != f.check || got.Object != f.object && f.object != "*" || got.Severity != f.severity ||
					!strings.Contains(got.What, f.what) || !strings.Contains(got.Remedy, f.remedy) {
					t.Errorf("%+v\nwant %+v", got, Finding{Check: f.check, Object: f.object, Severity: f.severity, What: f.what, Remedy: f.remedy})
				}
			}
			if len(found) > 1 && f.object != "*" {
				t.Errorf("%d findings for one fault", len(found))
			}
		})
	}
	seeded := map[string]bool{}
	for _, f := range faults {
		seeded[f.check] = true
	}
	for _, name := range Names() {
		if !seeded[name] {
			t.Errorf("no fault is seeded for %s", name)
		}
	}
}
