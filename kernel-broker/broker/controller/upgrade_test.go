// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// upgraded is a fixture on the records of a broker of commit 209bc79, see
// testdata/209bc79; it is not started.
func upgraded(t *testing.T, keep func(key string) string) *fixture {
	t.Helper()
	text, err := os.ReadFile("testdata/209bc79/records.json")
	if err != nil {
		t.Fatal(err)
	}
	var records []struct {
		Key   string
		Value json.RawMessage
	}
	if err := json.Unmarshal(text, &records); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	f.has = func(string, uint64) (bool, error) { return true, nil }
	for _, r := range records {
		if key := keep(r.Key); key != "" {
			if _, err := f.store.Commit(t.Context(), store.Write{Key: key, Value: r.Value, Expect: store.AnyRevision}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

const oldArm = "kprof: mitgcm@1 for job "

// bootOf is the n-th boot of a node in those records.
func bootOf(node, n string) string { return node + "000000-0000-4000-8000-00000000000" + n }

func TestUpgradeFrom209bc79(t *testing.T) {
	f := upgraded(t, func(key string) string { return strings.TrimPrefix(key, "accepted") })
	catalogFrom209bc79(t, f)
	for _, n := range []string{"n1", "n4", "n6"} {
		f.slurm.node(n, "IDLE", "")
	}
	f.slurm.node("n2", "ALLOCATED+DRAIN+REBOOT_REQUESTED", oldArm+"8")
	f.slurm.job(8, "RUNNING", "n2")
	f.slurm.node("n3", "ALLOCATED+POWERING_UP+DRAIN+REBOOT_REQUESTED", oldArm+"9")
	f.slurm.job(9, "CONFIGURING", "n3")
	f.slurm.node("n5", "DOWN+DRAIN+REBOOT_ISSUED", oldArm+"11 : reboot issued")
	f.start()
	for job, phase := range map[uint32]kb.Phase{7: kb.PhaseDone, 8: kb.PhaseReady, 9: kb.PhaseSwitching, 11: kb.PhaseReturning} {
		if got := f.phase(job); got != phase {
			t.Errorf("job %d is %s", job, got)
		}
	}
	past, err := f.c.Job(t.Context(), 7, nil)
	if err != nil || past.Before["n1"].Ref != simKernel("stock").Ref() || past.During["n1"].Ref != simKernel("mitgcm").Ref() ||
		past.After["n1"].BootID != bootOf("n1", "3") || past.User != "alice" {
		t.Fatalf("job 7: %+v, %v", past, err)
	}
	var events []string
	for _, e := range past.Timeline {
		events = append(events, e.Event)
	}
	for _, event := range []string{"accepted", "fetching", "loaded", "kexec", "attested", "ready", "returning", "done"} {
		if !slices.Contains(events, event) {
			t.Errorf("timeline %q has no %s", events, event)
		}
	}
	if lost, err := f.c.Job(t.Context(), 10, nil); err != nil || lost.Phase != kb.PhaseFailed || !strings.Contains(lost.Reason, "digest differs") {
		t.Errorf("job 10: %+v, %v", lost, err)
	}
	nodesFrom209bc79(t, f)
	runsFrom209bc79(t, f)

	// Every switch goes on where it was.
	ready := f.attach("n2", "mitgcm", f.token("n2"), bootOf("n2", "2"))
	ready.wished(t, "the job goes on", func(d kb.DesiredState) bool {
		return d.Attested && d.SlurmdAllowed && d.Kernel == nil && slices.Equal(d.Jobs, []uint32{8})
	})
	booted := f.attach("n3", "mitgcm", f.pending("n3").Token, bootOf("n3", "2"))
	booted.wished(t, "the boot is proven by a token of before", func(d kb.DesiredState) bool { return d.Attested && d.Running.Profile == "mitgcm" })
	f.slurm.node("n3", "ALLOCATED+DRAIN+REBOOT_REQUESTED", oldArm+"9")
	until(t, "job 9 is ready", func() bool { return f.phase(9) == kb.PhaseReady })
	back := f.attach("n5", "mitgcm", f.token("n5"), bootOf("n5", "2"))
	d := back.wished(t, "stock is still asked for", func(d kb.DesiredState) bool { return d.Kernel != nil && d.Kernel.Ref().IsStock() })
	back.Report(kb.SwitchReport{Generation: d.Generation, Progress: kb.ProgressBooting})
	until(t, "n5 boots", func() bool { p := f.pending("n5"); return p != nil && p.Progress == kb.ProgressBooting })
	back.Detach()
	f.attach("n5", kb.StockProfile, d.Token, bootOf("n5", "3")).wished(t, "stock", func(d kb.DesiredState) bool { return d.Attested && len(d.Jobs) == 0 })
	f.slurm.node("n5", "IDLE", "")
	until(t, "job 11 is done", func() bool { return f.phase(11) == kb.PhaseDone })
	if f.phase(8) != kb.PhaseReady {
		t.Errorf("job 8 is %s", f.phase(8))
	}
}

// A broker that was ended right after it had accepted a job.
func TestUpgradeOfAnAcceptedJob(t *testing.T) {
	f := upgraded(t, func(key string) string { return strings.Replace(key, "accepted", "jobs/0000000009/000000", 1) })
	for _, n := range []string{"n1", "n4", "n5", "n6"} {
		f.slurm.node(n, "IDLE", "")
	}
	f.slurm.node("n3", "ALLOCATED+POWERING_UP", "")
	f.slurm.job(9, "CONFIGURING", "n3")
	f.start()
	if a, err := f.c.Job(t.Context(), 9, nil); err != nil || a.Kernel.Ref() != simKernel("mitgcm").Ref() || !a.Switching() {
		t.Errorf("job 9: %+v, %v", a, err)
	}
	until(t, "it switches", func() bool { return f.phase(9) == kb.PhaseSwitching })
}

// token is the one that the node's boot was proven by.
func (f *fixture) token(node string) string {
	f.t.Helper()
	v, err := f.c.Node(node)
	if err != nil {
		f.t.Fatal(err)
	}
	return v.Node.Boot.Token
}

func catalogFrom209bc79(t *testing.T, f *fixture) {
	t.Helper()
	p, err := f.catalog.Get(t.Context(), "mitgcm")
	if err != nil || len(p.Versions) != 2 || p.DefaultVersion != 1 || p.Reuse != kb.ReuseSameProfile || p.BootAttempts != 2 {
		t.Fatalf("mitgcm: %+v, %v", p, err)
	}
	if v := p.Versions[1]; v.Retired == nil || v.Retired.Reason != "superseded" || !slices.Equal(v.Kernel.Arguments, []string{"quiet"}) {
		t.Errorf("mitgcm@2: %+v", v)
	}
	if len(p.History) == 0 || p.History[len(p.History)-1].What != kb.ChangeRetired {
		t.Errorf("history of mitgcm: %+v", p.History)
	}
	if v, err := f.catalog.Check(t.Context(), kb.Ref{Profile: "mitgcm"}); err != nil || v.Kernel.Version != 1 {
		t.Errorf("mitgcm: %+v, %v", v, err)
	}
	if p, err := f.catalog.Get(t.Context(), "lammps"); err != nil || p.Versions[0].BootFailures != 2 || p.Versions[0].Quarantine == nil ||
		!strings.Contains(p.Versions[0].Quarantine.Reason, "panic") {
		t.Errorf("lammps: %+v, %v", p, err)
	}
	if _, err := f.catalog.Check(t.Context(), kb.Ref{Profile: "lammps"}); err == nil {
		t.Error("lammps@1 can be chosen")
	}
	if v, err := f.catalog.Check(t.Context(), kb.Ref{Profile: "broken"}); err != nil || v.BootFailures != 1 {
		t.Errorf("broken: %+v, %v", v, err)
	}
}

func nodesFrom209bc79(t *testing.T, f *fixture) {
	t.Helper()
	for _, want := range []struct {
		name     string
		progress kb.Progress
		desired  string
		running  string
		job      uint32
	}{
		{"n1", kb.ProgressSteady, "stock", "stock@1", 0},
		{"n2", kb.ProgressSteady, "mitgcm@1", "mitgcm@1", 8},
		{"n3", kb.ProgressBooting, "mitgcm@1", "stock@1", 9},
		{"n5", kb.ProgressLoading, "stock", "mitgcm@1", 0},
		{"n6", kb.ProgressSteady, "stock", "stock@1", 0},
	} {
		v, err := f.c.Node(want.name)
		if err != nil {
			t.Fatal(err)
		}
		n := v.Node
		if n.Progress() != want.progress || n.Desired.String() != want.desired || n.Running.Ref.String() != want.running || n.Owner.Job != want.job ||
			len(n.Boot.BootID) != len(bootOne) || n.Generation == 0 {
			t.Errorf("%s is %s: %+v", want.name, n.Progress(), n)
		}
	}
	v, err := f.c.Node("n1")
	if err != nil || v.Node.Kexecs != 2 || len(v.Node.Issued) != 2 {
		t.Errorf("n1: %+v, %v", v.Node, err)
	}
}

func runsFrom209bc79(t *testing.T, f *fixture) {
	t.Helper()
	if r := f.run(1); r.State != kb.RunComplete || r.Job.Job != 12 || !slices.Equal(r.Collectors, []string{"io", "noise"}) ||
		len(r.Nodes) != 1 || r.Nodes[0].State != kb.RunNodeDelivered || !slices.Equal(r.Nodes[0].Files, []kb.Document{result}) {
		t.Errorf("run 1: %+v", r)
	}
	if r := f.run(2); r.State != kb.RunRunning || r.Job.Job != 8 || r.Profile != "mitgcm" || r.RequestedBy != "alice" || r.RequestID != "r-1" {
		t.Errorf("run 2: %+v", r)
	}
}
