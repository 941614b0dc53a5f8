// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

const healthyConfig = `Configuration data as of 2026-11-24T12:00:00
AccountingStorageEnforce = associations
Epilog                  = /usr/libexec/kernel-broker/epilog
EpilogSlurmctld         = /usr/libexec/kernel-broker/epilog-slurmctld
JobRequeue              = 1
JobSubmitPlugins        = lua
PlugStackConfig         = /etc/slurm/plugstack.conf
PrologEpilogTimeout     = 720
PrologFlags             = Alloc,DeferBatch
PrologSlurmctld         = /usr/libexec/kernel-broker/prolog-slurmctld
RebootProgram           = /usr/libexec/kernel-broker/reboot
ResumeTimeout           = 600 sec
ReturnToService         = 1
SchedulerParameters     = bf_interval=1,nohold_on_prolog_fail,spec_cores_first
SlurmctldParameters     = reboot_from_controller
SLURM_VERSION           = 22.05.8
TaskPluginParam         = (null type)

Slurmctld(primary) at front is UP
`

// month is a certificate that is a third through its time.
func month() Certificate {
	return Certificate{From: noon.AddDate(0, 0, -10), Until: noon.AddDate(0, 0, 20)}
}

func kernel(profile string, version uint32) kb.ProfileVersion {
	return kb.ProfileVersion{Envelope: []byte("{}"), Kernel: kb.Kernel{Profile: profile, Version: version, Architecture: "x86_64",
		Drivers: []string{"ext4", "virtio_net"}, MinMemoryMiB: 512}}
}

func profile(name string, versions ...kb.ProfileVersion) kb.Profile {
	return kb.Profile{Name: name, DefaultVersion: 1, Versions: versions, BootAttempts: 2, BootTimeout: 2 * time.Minute}
}

func node(name string) Node {
	return Node{Name: name, Connected: true, Phase: "steady", AgentVersion: "1.0", Inventory: kb.Inventory{
		Architecture: "x86_64", MemoryMiB: 4096, CPUs: 4, Cores: 4, Drivers: []string{"virtio_net"}}}
}

// healthy is a site of three nodes, seen from a host that is controller and compute node at once, so that every check is
// possible.
func healthy() *Site {
	ours := func(path string) Fact[[]Program] {
		return Known([]Program{{Path: "/usr/libexec/kernel-broker/" + path, Is: ProgramOurs}})
	}
	ahead := 20 * time.Millisecond
	slurm := map[string]kb.SlurmNode{}
	for _, n := range []string{"n1", "n2", "n3"} {
		slurm[n] = kb.SlurmNode{Name: n, State: "IDLE"}
	}
	cores := kernel("cores", 1)
	cores.Kernel.SystemCores = 1
	certificate := month()
	return &Site{
		Host: "front", Version: "1.0", Now: noon,
		Slurmctld: Known(Answer{}), Slurm: Known(ParseSlurmConfig(healthyConfig)), SlurmNodes: Known(slurm), Moving: Known([]string(nil)),
		Programs: map[string]Fact[[]Program]{"RebootProgram": ours("reboot"), "PrologSlurmctld": ours("prolog-slurmctld"),
			"EpilogSlurmctld": ours("epilog-slurmctld"), "Epilog": ours("epilog")},
		JobSubmit: Known(JobSubmit{Path: "/etc/slurm/job_submit.lua", Ours: true, Submit: true, Modify: true}),
		Plugstack: Known(Plugstack{Path: "/etc/slurm/plugstack.conf", Lines: ParsePlugstack("required /usr/lib/kernel-broker/kernel_profile.so\n")}),
		Plugin:    Known(Plugin{Path: "/usr/lib/kernel-broker/kernel_profile.so", Slurm: "22.05", Installed: "22.05"}),
		Snapshot:  Known(Snapshot{Path: "/var/lib/kernel-broker/catalog.snapshot"}),
		Client:    Known(ClientFile{Path: "/etc/kernel-broker/client.yaml", Local: true, TLS: true, PrologLimit: 700 * time.Second, Counters: Known("")}),
		BrokerFile: Known(BrokerFile{Path: "/etc/kernel-broker/broker.yaml", TLS: "own", TrustList: "/etc/kernel-broker/trust.yaml",
			LoadLimit: 2 * time.Minute, Accounts: []string{"climate"}}),
		Broker: Known(Answer{Address: "unix:///run/b.sock"}), Health: Known(Health{Version: "1.0", Ahead: &ahead}),
		Port:        Known(Port{Answer: Answer{Address: "front:7440"}, Certificate: &certificate}),
		Authorities: Known([]Certificate{{From: noon.AddDate(-2, 0, 0), Until: noon.AddDate(8, 0, 0)}}),
		Certificates: Known(map[string][]Certificate{
			"n1": {month()}, "n2": {{From: noon.AddDate(0, 0, -40), Until: noon.AddDate(0, 0, -10)}, month()}, "n3": {month()}}),
		Artifacts: Known(Capacity{Name: "artifacts", Used: 1 << 30, Limit: 64 << 30}), Database: Known(Capacity{Name: "db", Used: 20 << 20, Limit: 512 << 20}),
		Disks: Known([]Disk{{Path: "/var/lib/kernel-broker", Free: 50 << 30, Size: 100 << 30}}),
		Nodes: Known([]Node{node("n1"), node("n2"), node("n3")}),
		Profiles: Known([]kb.Profile{profile(kb.StockProfile, kernel(kb.StockProfile, 1)), profile("mitgcm", kernel("mitgcm", 1), kernel("mitgcm", 2)),
			profile("cores", cores)}),
		Ignored: map[kb.Ref]Fact[string]{{Profile: "cores", Version: 1}: Known("")},
		Agent: Known(Agent{Path: "/etc/kernel-broker/agent.yaml", Node: "n1", TLS: "own", TrustList: "/etc/kernel-broker/trust.yaml", Certificate: Known(month()),
			Kexec: Program{Path: "/usr/sbin/kexec", Is: ProgramOther}, Systemd: true, DropIn: true}),
	}
}

func TestHealthySite(t *testing.T) {
	for _, r := range Examine(healthy(), nil) {
		if r.Outcome != Passed || r.About == "" {
			t.Errorf("%s: %s %v %+v", r.Check, r.Outcome, r.Why, r.Findings)
		}
	}
	if n := len(Names()); n < 40 {
		t.Errorf("only %d checks", n)
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(Names()))); len(sorted) != len(Names()) {
		t.Errorf("two checks have one name: %v", Names())
	}
}

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
	}, "nodes-unknown-to-slurm", "n3", Warning, "its certificate is good", "kernelctl node revoke n3"},
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
					t.Errorf("%+v\nwant %+v", got, Finding{f.check, f.object, f.severity, f.what, f.remedy})
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

// A fact that could not be had leaves its checks without a result, and nothing else.
func TestUnknownFacts(t *testing.T) {
	for _, r := range Examine(&Site{Host: "login"}, nil) {
		if r.Outcome != NotPossible || len(r.Why) == 0 || len(r.Findings) > 0 {
			t.Errorf("%s of nothing: %+v", r.Check, r)
		}
	}
	s := healthy()
	s.Nodes = Unknown[[]Node]("only administrators may")
	for _, r := range Examine(s, nil) {
		needs := slices.Contains([]string{"versions", "boots-somewhere", "fits-nodes", "nodes-without-agent", "nodes-unknown-to-slurm", "agents-away", "failed-nodes"}, r.Check)
		if needs != (r.Outcome == NotPossible) || needs && !slices.Equal(r.Why, []string{"only administrators may"}) || len(r.Findings) > 0 {
			t.Errorf("%s without nodes: %+v", r.Check, r)
		}
	}
	// Configurations that cannot be read leave what is in them unknown.
	s = healthy()
	s.Agent.Value.Error, s.BrokerFile.Value.Error, s.Port.Value.Error = "line 2", "line 7", "refused"
	version(0, func(v *kb.ProfileVersion) { v.Envelope = nil })(s)
	for _, r := range Examine(s, nil) {
		found := slices.Contains([]string{"agent-file", "broker-file", "agent-port"}, r.Check)
		not := slices.Contains([]string{"agent-answers", "kexec", "slurmd-unit", "slurmd-options", "accounts-enforced", "tls", "signatures", "broker-certificate"}, r.Check)
		if found != (r.Outcome == Found) || not != (r.Outcome == NotPossible) {
			t.Errorf("%s without configurations: %+v", r.Check, r)
		}
	}
	s = healthy()
	s.Ignored[kb.Ref{Profile: "cores", Version: 1}] = Unknown[string]("no configuration")
	for _, r := range Examine(s, nil) {
		if (r.Check == "ignored-arguments") != (r.Outcome == NotPossible) {
			t.Errorf("%s without a kernel's configuration: %+v", r.Check, r)
		}
	}
}

func TestIgnored(t *testing.T) {
	s := healthy()
	s.BrokerFile.Value.TLS = "none"
	(*s.Nodes.Value)[1].Connected, (*s.Nodes.Value)[2].Connected = false, false
	count := func(ignored ...string) (found, accepted int) {
		if err := Ignored(ignored).Validate(); err != nil {
			t.Fatal(err)
		}
		for _, r := range Examine(s, ignored) {
			found, accepted = found+len(r.Findings), accepted+len(r.Accepted)
		}
		return found, accepted
	}
	for _, c := range []struct {
		ignored         []string
		found, accepted int
	}{{nil, 3, 0}, {[]string{"tls"}, 2, 1}, {[]string{"agents-away=n2"}, 2, 1}, {[]string{"agents-away", "tls"}, 0, 3}, {[]string{"agents-away=n1"}, 3, 0}} {
		if found, accepted := count(c.ignored...); found != c.found || accepted != c.accepted {
			t.Errorf("%v: %d found, %d accepted; want %d and %d", c.ignored, found, accepted, c.found, c.accepted)
		}
	}
	if err := (Ignored{"tls", "tsl=x"}).Validate(); err == nil || !strings.Contains(err.Error(), `"tsl"`) {
		t.Errorf("a check that there is not: %v", err)
	}
}

// What is no fault gives no finding.
func TestNoFaults(t *testing.T) {
	for name, seed := range map[string]func(*Site){
		"hooks called by a site's script": program("PrologSlurmctld", ProgramCallsOurs),
		"several hooks, one of them ours": func(s *Site) {
			s.Programs["Epilog"] = Known([]Program{{Path: "/etc/slurm/health", Is: ProgramOther}, {Path: "/etc/slurm/epilog", Is: ProgramOurs}})
		},
		"no limit of prologs":      conf("PrologEpilogTimeout", "65534"),
		"any ReturnToService":      conf("ReturnToService", "2"),
		"a chained job_submit.lua": func(s *Site) { *s.JobSubmit.Value = JobSubmit{Loads: "/x", Submit: true, Modify: true} },
		"a node that boots":        func(s *Site) { (*s.Nodes.Value)[2].Connected, (*s.Nodes.Value)[2].Phase = false, "booting" },
		"a node without power": func(s *Site) {
			(*s.Nodes.Value)[2].Connected = false
			(*s.SlurmNodes.Value)["n3"] = kb.SlurmNode{Name: "n3", State: "IDLE", Flags: []string{"POWERED_DOWN"}}
		},
		"a node that left the cluster": func(s *Site) {
			n := &(*s.Nodes.Value)[2]
			n.Connected, n.Phase, n.Inventory.Drivers = false, "failed", []string{"mlx5_core"}
			delete(*s.SlurmNodes.Value, "n3")
			delete(*s.Certificates.Value, "n3")
			s.Revoked = []string{"n3"}
		},
		"a node that left the cluster, and its certificate has ended": func(s *Site) {
			(*s.Nodes.Value)[2].Connected = false
			delete(*s.SlurmNodes.Value, "n3")
			(*s.Certificates.Value)["n3"] = []Certificate{old(-3)}
		},
		"a retired kernel that is":  version(1, func(v *kb.ProfileVersion) { v.Retired, v.Envelope, v.Kernel.Drivers = &kb.Retirement{}, nil, nil }),
		"stock without a signature": func(s *Site) { (*s.Profiles.Value)[0].Versions[0].Envelope = nil },
		"no signatures are asked for": func(s *Site) {
			s.BrokerFile.Value.TrustList, s.Agent.Value.TrustList = "", ""
			version(0, func(v *kb.ProfileVersion) { v.Envelope = nil })(s)
		},
		"a slurmd that the agent starts":   agent(func(a *Agent) { a.Systemd, a.DropIn = false, false }),
		"accounts by all":                  conf("AccountingStorageEnforce", "all"),
		"a node that has told nothing yet": func(s *Site) { (*s.Nodes.Value)[2].Inventory = kb.Inventory{} },
		"a store without a limit":          func(s *Site) { s.Artifacts.Value.Limit, s.Artifacts.Value.Used = 0, 1<<50 },
		"a node with an older certificate": func(s *Site) { (*s.Certificates.Value)["n1"] = []Certificate{old(-3), month()} },
	} {
		s := healthy()
		seed(s)
		for _, r := range Examine(s, nil) {
			if len(r.Findings) > 0 {
				t.Errorf("%s: %+v", name, r.Findings)
			}
		}
	}
}

func TestNames(t *testing.T) {
	var list []string
	for i := range 11 {
		list = append(list, fmt.Sprintf("n%02d", 11-i))
	}
	if got := names(list); got != "n01, n02, n03, n04, n05, n06, n07, n08 and 3 more" {
		t.Error(got)
	}
}

// The documentation has a row for each check, and none for another.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/ops/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, m[1])
	}
	if !slices.Equal(rows, Names()) {
		t.Errorf("rows of doctor.md:\n%v\nchecks:\n%v", rows, Names())
	}
}

// Findings of one check come in the same order each time.
func TestOrderOfPrologFlags(t *testing.T) {
	for range 50 {
		s := healthy()
		conf("PrologFlags", "Contain")(s)
		var objects []string
		for _, r := range Examine(s, nil) {
			for _, f := range r.Findings {
				objects = append(objects, f.Object)
			}
		}
		if strings.Join(objects, " ") != "Alloc DeferBatch" {
			t.Fatalf("found %q", objects)
		}
	}
}
