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
ProctrackType           = proctrack/cgroup
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
	certificate.Cluster = "lab"
	return &Site{
		Host: "front", Version: "1.0", Now: noon,
		Slurmctld: Known(Answer{}), Slurm: Known(ParseSlurmConfig(healthyConfig)), SlurmNodes: Known(slurm), Moving: Known([]string(nil)),
		Partitions: Known([]Partition{{Name: "main", Default: true}, {Name: "shared", Shares: true}}), SlurmUser: Known(SlurmUser{Name: "slurm", Group: "slurm"}),
		Programs: map[string]Fact[[]Program]{"RebootProgram": ours("reboot"), "PrologSlurmctld": ours("prolog-slurmctld"),
			"EpilogSlurmctld": ours("epilog-slurmctld"), "Epilog": ours("epilog")},
		JobSubmit: Known(JobSubmit{Path: "/etc/slurm/job_submit.lua", Ours: true, Submit: true, Modify: true}),
		Plugstack: Known(Plugstack{Path: "/etc/slurm/plugstack.conf", Lines: ParsePlugstack("required /usr/lib/kernel-broker/kernel_profile.so\n")}),
		Plugin:    Known(Plugin{Path: "/usr/lib/kernel-broker/kernel_profile.so", Slurm: "22.05", Installed: "22.05"}),
		Snapshot:  Known(Snapshot{Path: "/var/lib/kernel-broker/catalog.snapshot"}),
		Client:    Known(ClientFile{Path: "/etc/kernel-broker/client.yaml", Cluster: "lab", Local: true, TLS: true, PrologLimit: 700 * time.Second, Counters: Known("")}),
		BrokerFile: Known(BrokerFile{Path: "/etc/kernel-broker/broker.yaml", Cluster: "lab", TLS: "own", TrustList: "/etc/kernel-broker/trust.yaml",
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
		not := slices.Contains([]string{"agent-answers", "kexec", "panic", "collector-cgroups", "slurmd-unit", "slurmd-options", "accounts-enforced", "tls", "signatures", "broker-certificate"}, r.Check)
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
	}{{nil, 2, 0}, {[]string{"tls"}, 1, 1}, {[]string{"agents-away=n2"}, 2, 1}, {[]string{"agents-away", "tls"}, 0, 2}, {[]string{"agents-away=n1"}, 2, 0},
		{[]string{"agents-away=n[2-3]"}, 1, 1}} {
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
		list = append(list, fmt.Sprintf("a%02d", 11-i))
	}
	if got := names(list); got != "a01, a02, a03, a04, a05, a06, a07, a08 and 3 more" {
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
