// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

func someNodes() []*api.Node {
	return []*api.Node{
		{Name: "n1", Phase: api.NodePhase_NODE_PHASE_STEADY, RunningProfile: "mitgcm", RunningVersion: 1, DesiredProfile: "mitgcm", DesiredVersion: 1,
			Release: "6.1.0-mitgcm", BuildId: strings.Repeat("ab", 20), BootId: "8ad0c5a4-0000-4000-8000-000000000001", Attested: true, JobId: 12,
			Connected: true, LastSeen: at(0), Kexecs: 3, SlurmState: "ALLOCATED+DRAIN+REBOOT_REQUESTED", SlurmReason: "bad DIMM [root@2026-11-20T11:59:00]",
			Inventory: &api.Inventory{Architecture: "x86_64", MemoryMib: 512, Cpus: 4, Cores: 4, ApplicationCpus: "1-3", RootDevice: "none", RootFilesystem: "rootfs", Drivers: []string{"virtio_net"}}},
		{Name: "n2", Phase: api.NodePhase_NODE_PHASE_FAILED, Cause: "silent for 2m\x1b[31m\nand more", DesiredProfile: "stock", DesiredVersion: 1, LastSeen: at(-60000)},
	}
}

func someJobs() []*api.Job {
	proof := func(profile, boot string) []*api.NodeProof {
		return []*api.NodeProof{{Node: "n1", Release: "6.1.0-" + profile, BuildId: strings.Repeat("cd", 20), BootId: boot, Profile: profile, Version: 1}}
	}
	return []*api.Job{
		{JobId: 14, Reference: "12_1", User: "alice", Uid: 1000, Profile: "mitgcm", Version: 1, Nodes: []string{"n1"},
			Phase: api.AllocationPhase_ALLOCATION_PHASE_DONE, HandedTo: "12_2",
			Timeline: []*api.TimelineEvent{
				{At: at(0), Event: "accepted", Detail: "alice asked for mitgcm"},
				{At: at(10), Event: "switching"},
				{At: at(200), Node: "n1", Event: "armed"},
				{At: at(700), Node: "n1", Event: "loaded", Detail: "mitgcm@1"},
				{At: at(2250), Node: "n1", Event: "attested", Detail: "boot 8ad0c5a4"},
				{At: at(2500), Node: "n1", Event: "registered"},
				{At: at(2510), Event: "ready"},
				{At: at(62510), Event: "returning", Detail: "kept for 12_2"},
				{At: at(62600), Event: "done"},
			},
			Before: proof("stock", "boot-1"), During: proof("mitgcm", "boot-2"), After: proof("mitgcm", "boot-2")},
		{JobId: 13, RestartCount: 2, Reference: "13", User: "bob", Profile: "mitgcm", Version: 1, Nodes: []string{"n1", "n2"},
			Phase: api.AllocationPhase_ALLOCATION_PHASE_FAILED, Reason: "n2: no such driver", Timeline: []*api.TimelineEvent{{At: at(5000), Event: "accepted"}}},
	}
}

func TestNodesAndJobs(t *testing.T) {
	f := newFixture(t)
	f.must(0, "no nodes: no agent has connected yet", "node", "list")
	f.must(0, "no jobs requested a kernel", "job", "list")
	if out := f.must(0, "", "node", "list", "-o", "json"); out != "{\n  \"nodes\": []\n}\n" {
		t.Errorf("an empty list is %s", out)
	}
	f.nodes.list, f.jobs.list = someNodes(), someJobs()
	for _, format := range []string{"table", "json", "yaml"} {
		golden(t, "node-list."+format, f.must(0, "", "node", "list", "-o", format))
		golden(t, "node-show."+format, f.must(0, "", "node", "show", "n1", "-o", format))
		golden(t, "job-list."+format, f.must(0, "", "job", "list", "-o", format))
		golden(t, "job-show."+format, f.must(0, "", "job", "show", "12_1", "-o", format))
		golden(t, "health."+format, f.must(0, "", "health", "-o", format))
		golden(t, "version."+format, f.must(0, "", "version", "-o", format))
	}
	f.must(3, `node "n3"`, "node", "show", "n3")
}

// The node that matters most: nothing is under way on it, and nobody knows what
// it runs.
func TestUnprovenNode(t *testing.T) {
	f := newFixture(t)
	f.nodes.list = []*api.Node{convert.NodeToProto(kb.NodeView{Node: &kb.Node{Name: "n3", Desired: kb.Ref{Profile: "stock", Version: 1}}})}
	if out := f.must(0, "", "node", "list"); !strings.Contains(out, "n3     unproven") {
		t.Errorf("node list:\n%s", out)
	}
	if out := f.must(0, "", "node", "list", "-o", "json"); !strings.Contains(out, `"phase": "unproven"`) {
		t.Errorf("node list -o json:\n%s", out)
	}
}

func TestJobsByName(t *testing.T) {
	f := newFixture(t)
	f.jobs.list = someJobs()
	if out := f.must(0, "", "job", "show", "13", "--restart", "2"); !strings.Contains(out, "n2: no such driver") {
		t.Errorf("job 13: %s", out)
	}
	f.must(3, "job 13", "job", "show", "13", "--restart", "0")
	f.must(3, "the broker has no record of job 12_9 (known: 12_1)", "job", "show", "12_9")
	f.must(3, "the broker has no record of job 7+1: ", "job", "show", "7+1")
	for _, name := range []string{"x", "12_", "12_x", "0", "-1", "1_2_3"} {
		if code, _, stderr := f.run("job", "show", "--", name); code != 2 {
			t.Errorf("job show %s: exit %d, %s", name, code, stderr)
		}
	}
}

func TestWatch(t *testing.T) {
	f := newFixture(t)
	f.jobs.list = someJobs()[:1]
	whole := f.jobs.list[0].GetTimeline()
	f.jobs.then = func(looks int, list []*api.Job) {
		list[0] = someJobs()[0]
		list[0].Phase = api.AllocationPhase_ALLOCATION_PHASE_SWITCHING
		list[0].Timeline = whole[:min(2*looks, 6)]
		if looks > 3 {
			list[0].Phase, list[0].Timeline = api.AllocationPhase_ALLOCATION_PHASE_READY, whole[:7]
		}
	}
	code, stdout, stderr := f.run("job", "show", "12_1", "--watch")
	if code != 0 || !strings.Contains(stdout, "Ready after:") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	golden(t, "job-watch.stderr", stderr)
}

func TestHealthReportsProblems(t *testing.T) {
	f := newFixture(t)
	f.components[1] = server.Component{Name: "slurm", Detail: "slurmctld does not answer"}
	if out := f.must(1, "the broker is not healthy", "health"); !strings.Contains(out, "slurm      UNHEALTHY  slurmctld does not answer") {
		t.Errorf("health: %s", out)
	}
	f.components[1] = server.Component{Name: "policy", Healthy: true, Detail: "in force", Warning: `no profile "mitgmc"`}
	if out := f.must(0, "", "health"); !strings.Contains(out, `policy     WARNING  in force; no profile "mitgmc"`) {
		t.Errorf("health: %s", out)
	}
}

// A broker that answers and cannot do it is not one that cannot be reached, also when it says so of its own store.
func TestWhatUnavailableMeans(t *testing.T) {
	a := &app{address: "ctl1:7440"}
	for _, c := range []struct{ text, want string }{
		{"audit log \"/a\": unavailable: no space left on device", "the broker at ctl1:7440 cannot do it now: audit log"},
		{`store unavailable: connection error: desc = "transport: Error while dialing: refused"`, "the broker at ctl1:7440 cannot do it now: store unavailable"},
		{`connection error: desc = "transport: Error while dialing: dial tcp: refused"`, "broker at ctl1:7440 cannot be reached: dial tcp: refused"},
		{`last connection error: connection error: desc = "transport: x"`, "broker at ctl1:7440 cannot be reached"},
		{"error reading from server: EOF", "broker at ctl1:7440 cannot be reached: error reading from server: EOF"},
		{"transport is closing", "broker at ctl1:7440 cannot be reached: transport is closing"},
		{"name resolver error: produced zero addresses", "broker at ctl1:7440 cannot be reached: name resolver error"},
	} {
		for _, err := range []error{status.Error(codes.Unavailable, c.text), fmt.Errorf("profile mitgcm: %w", status.Error(codes.Unavailable, c.text))} {
			code, text := a.explain(err)
			if begin, _, _ := strings.Cut(c.want, ": "); code != exitUnavailable || !strings.HasPrefix(text, begin) {
				t.Errorf("%v is exit %d, %q", err, code, text)
			}
		}
		if _, text := a.explain(status.Error(codes.Unavailable, c.text)); !strings.HasPrefix(text, c.want) {
			t.Errorf("%q, want %q", text, c.want)
		}
	}
}

func TestUnreachableBroker(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nobody.sock")
	code, stdout, stderr := runAt(t, socket, "profile", "check", "mitgcm")
	want := "broker at " + socket + " cannot be reached: dial unix " + socket + ": connect: no such file or directory\n"
	if code != 4 || stdout != "" || stderr != want {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = runAt(t, socket, "version")
	if code != 0 || stdout != "kernelctl      1.2.3\nkernel-broker  -\n" || stderr != want {
		t.Errorf("version: exit %d, %q, %q", code, stdout, stderr)
	}
}

func TestBrokerAddress(t *testing.T) {
	f := newFixture(t)
	config := filepath.Join(t.TempDir(), "client.yaml")
	if err := os.WriteFile(config, []byte("broker: "+f.socket+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runAt(t, "", "health", "--config", config); code != 0 {
		t.Errorf("from the settings: exit %d, %s", code, stderr)
	}
	if code, _, stderr := runAt(t, "/nowhere", "health", "--broker", "unix:"+f.socket); code != 0 {
		t.Errorf("the flag counts most: exit %d, %s", code, stderr)
	}
	f.must(2, "neither unix:///path nor host:port", "health", "--broker", "nonsense")
	if code, _, stderr := runAt(t, "", "health", "--config", "/nowhere"); code != 1 || !strings.Contains(stderr, "/nowhere") {
		t.Errorf("no settings: exit %d, %s", code, stderr)
	}
}

func TestUsage(t *testing.T) {
	f := newFixture(t)
	for words, arguments := range map[string][]string{
		`unknown command "foo"`:                           {"foo"},
		`profile has no command "foo", it has list, show`: {"profile", "foo"},
		"node needs a command: list, show":                {"node"},
		"accepts 1 arg(s), received 0":                    {"node", "show"},
		"unknown flag: --foo":                             {"health", "--foo"},
		`--output "xml" is not one of`:                    {"health", "-o", "xml"},
	} {
		f.must(2, words, arguments...)
	}
	if out := f.must(0, "", "--help"); !strings.Contains(out, "3  refused") {
		t.Errorf("--help does not explain the exit codes: %s", out)
	}
	if out := f.must(0, "", "completion", "bash"); !strings.Contains(out, "bash completion") {
		t.Error("no completion")
	}
}

// JSON and YAML have the same content.
func TestFormatsAgree(t *testing.T) {
	f := newFixture(t)
	f.jobs.list = someJobs()
	var fromJSON, fromYAML any
	if err := json.Unmarshal([]byte(f.must(0, "", "job", "list", "-o", "json")), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(f.must(0, "", "job", "list", "-o", "yaml")), &fromYAML); err != nil {
		t.Fatal(err)
	}
	a, err := json.Marshal(fromJSON)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("JSON %s\nYAML %s", a, b)
	}
}

func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	newFixture(t).must(0, "", "man", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 15 {
		t.Errorf("pages %v, %v", pages, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "kernelctl.1"))
	if err != nil || !strings.Contains(string(text), "KERNEL_BROKER_ADDRESS") {
		t.Errorf("kernelctl.1: %v", err)
	}
}

// A job that waits has no allocation, and a task of an array that waits no id of
// its own.
func TestJobShowPending(t *testing.T) {
	f := newFixture(t)
	f.jobs.list = []*api.Job{{JobId: 40, User: "alice", Profile: "mitgcm", Phase: api.AllocationPhase_ALLOCATION_PHASE_WAITING,
		Reason: "it is held (JobHeldUser): scontrol release 40"}}
	for _, name := range []string{"40", "40_3"} {
		out := f.must(0, "", "job", "show", name)
		for _, words := range []string{"mitgcm", "waiting", "scontrol release 40"} {
			if !strings.Contains(out, words) {
				t.Errorf("%s: no %q in\n%s", name, words, out)
			}
		}
	}
}
