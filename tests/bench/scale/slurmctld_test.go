// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/slurm"
)

// served is a slurmctld of four nodes, with the product's client of its commands.
func served(t *testing.T) (*slurmctld, *slurm.Client) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "kb-slurm")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/kb-slurm").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := newSlurmctld("root(0)", []string{"n00001", "n00002", "n00003", "n00004"})
	l, err := serveCommands(filepath.Join(dir, "bin"), program, s.run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		if len(s.unknown) > 0 {
			t.Errorf("commands without an answer: %v", s.unknown)
		}
	})
	return s, slurm.New(slurm.Options{BinDir: filepath.Join(dir, "bin"), Limit: time.Minute})
}

// The product reads what a job and its nodes go through, and its commands change them.
func TestBroughtToItsKernelAndBack(t *testing.T) {
	s, client := served(t)
	reboots := make(chan []string, 1)
	s.reboot = func(nodes []string) { reboots <- nodes }
	states := func(want ...string) {
		t.Helper()
		view, err := client.View(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range s.names {
			got = append(got, view.Nodes[name].FullState())
		}
		if !slices.Equal(got, want) || view.ResumeTimeout != 10*time.Minute {
			t.Errorf("%v, want %v; ResumeTimeout %v", got, want, view.ResumeTimeout)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	nodes := []string{"n00002", "n00003"}
	s.allocate(7, nodes, "kernel-broker: app requested")
	states("IDLE", "ALLOCATED+POWERING_UP", "ALLOCATED+POWERING_UP", "IDLE")
	view, err := client.View(t.Context(), false)
	if j := view.Jobs[7]; err != nil || j.State != "CONFIGURING" || !slices.Equal(j.Nodes, nodes) || !j.Reboot || j.User != "root" || j.Unread != "" {
		t.Errorf("job %+v, %v", j, err)
	}
	if comment, err := client.AdminComment(t.Context(), 7); comment != "kernel-broker: app requested" {
		t.Errorf("%q, %v", comment, err)
	}
	do(client.ArmReturn(t.Context(), nodes))
	do(client.Label(t.Context(), []string{"n00002"}, "kprof: app@1 for job 7"))
	do(client.Comment(t.Context(), "7", "half"))
	do(client.SetFeatures(t.Context(), []string{"n00001", "n00002", "n00004"}, "kernel=app", "kernel=app"))
	if read, err := client.Nodes(t.Context(), nodes); err != nil || !slices.Equal(read["n00002"].Features, []string{"kernel=app"}) || read["n00003"].Available != nil {
		t.Errorf("%+v, %v", read, err)
	}
	if read, err := client.Nodes(t.Context(), nodes); err != nil || read["n00002"].Reason != "kprof: app@1 for job 7" || !strings.HasPrefix(read["n00002"].By, "root@") || !read["n00003"].Unnamed() {
		t.Errorf("%+v, %v", read, err)
	}
	s.nodes["n00002"].request = s.nodes["n00002"].request.Add(-2 * time.Second)
	s.register("n00002", true)
	s.register("n00003", false) // claims no boot
	states("IDLE", "ALLOCATED+DRAIN+REBOOT_REQUESTED", "ALLOCATED+DRAIN+POWERING_UP+REBOOT_REQUESTED", "IDLE")
	if !s.begin(7) || s.begin(8) {
		t.Error("begin")
	}
	s.end(7)
	states("IDLE", "DOWN+DRAIN+REBOOT_ISSUED", "DOWN+DRAIN+REBOOT_ISSUED", "IDLE")
	if got := <-reboots; !slices.Equal(got, nodes) || s.idle(nodes) {
		t.Errorf("rebooted %v", got)
	}
	s.register("n00002", true) // within the second of its request
	for _, name := range nodes {
		s.nodes[name].request = s.nodes[name].request.Add(-2 * time.Second)
		s.register(name, true)
	}
	states("IDLE", "IDLE", "IDLE", "IDLE")
	if n, _ := s.drained(); n != 0 || !s.idle(nodes) {
		t.Errorf("%d drained", n)
	}
}

// Each node that the broker takes out of service counts once, and its job is requeued while it boots.
func TestDrainedNodesCount(t *testing.T) {
	s, client := served(t)
	s.allocate(7, s.names[:2], "")
	for range 2 {
		if err := client.Drain(t.Context(), "n00001", "kernel-broker: silent", time.Time{}); err != nil {
			t.Error(err)
		}
	}
	if err := client.Down(t.Context(), "n00004", "kernel-broker: lost", time.Time{}); err != nil {
		t.Error(err)
	}
	if n, example := s.drained(); n != 2 || !strings.Contains(example, "kernel-broker: ") || s.begin(7) {
		t.Errorf("%d, %s", n, example)
	}
	if err := client.Requeue(t.Context(), "7"); err == nil {
		t.Error("a job that has left was requeued")
	}
	if err := client.EndWait(t.Context(), "n00001"); err != nil {
		t.Error(err)
	}
	if n, _ := s.drained(); n != 0 || !s.idle(s.names[:1]) || s.idle(s.names[1:2]) {
		t.Error("one was given back, the other still waits for its boot")
	}
}

// A node's line has the fields of the real one, in their order.
func TestLineOfANode(t *testing.T) {
	real, err := os.ReadFile("../../../kernel-broker/broker/slurm/testdata/real/24.11.nodes")
	if err != nil {
		t.Fatal(err)
	}
	field := regexp.MustCompile(`(?m) ([A-Za-z_]+)=`)
	fields := func(line string) (all []string) {
		line, _, _ = strings.Cut(line, "\n")
		line, _, _ = strings.Cut(line, " Comment=")
		for _, m := range field.FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
		return all
	}
	want, got := fields(string(real)), fields(string((&slurmNode{name: "n00001"}).line(nil)))
	if !slices.Equal(got, want) || len(want) < 30 {
		t.Errorf("%v, want %v", got, want)
	}
}
