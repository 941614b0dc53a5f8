// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// happened are some events of a night.
func happened(t *testing.T, f *fixture) {
	t.Helper()
	uid := uint32(1000)
	mitgcm, job := kb.Ref{Profile: "mitgcm", Version: 2}, kb.JobID{Job: 12}
	for _, e := range []kb.ClusterEvent{
		{Subject: kb.SubjectJob, Event: "accepted", Job: job, UID: &uid, User: "alice", Kernel: mitgcm, To: "n[1-2]", Who: "alice"},
		{Subject: kb.SubjectNode, Node: "n1", Event: kb.NodeProven, Job: job, UID: &uid, User: "alice", Kernel: mitgcm, From: "6.1-stock", To: "6.1-mitgcm", Took: 9300 * time.Millisecond, Who: "kernel-broker"},
		{Subject: kb.SubjectNode, Node: "n2", Event: kb.NodeOutOfService, To: "drained", Who: "eve", Why: "bad fan"},
		{Subject: kb.SubjectKernel, Event: kb.ChangeRetired, Kernel: mitgcm, Who: "root (uid 0)", Why: "old"},
		{Subject: kb.SubjectRule, Rule: "no-x", Event: kb.RuleAdded, To: "never", Who: "root", Why: "it hangs"},
		{Subject: kb.SubjectNode, Node: "n1", Event: kb.NodeSeen, At: time.Now().Add(-48 * time.Hour)},
	} {
		if _, err := f.events.Commit(t.Context(), []kb.ClusterEvent{e}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEvents(t *testing.T) {
	f := newFixture(t)
	happened(t, f)
	code, out, wrong := f.run("events")
	if code != exitOK {
		t.Fatalf("%d: %s", code, wrong)
	}
	for _, line := range []string{
		"job 12 accepted mitgcm@2 by alice", "node n1 proven mitgcm@2 (6.1-mitgcm) (job 12) after 9.3 s",
		"node n2 out of service drained by eve: bad fan", "kernel mitgcm@2 retired by root (uid 0): old", "rule no-x added never by root: it hangs",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	for _, c := range []struct {
		arguments string
		lines     int
		has       string
	}{
		{"events --node n1", 3, "proven"}, {"events --node n1 --since 1d", 2, "proven"}, {"events --job 12", 3, "accepted"}, {"events --profile mitgcm --after 3", 2, "retired"},
		{"events --limit 1", 2, "seen"}, {"events --node n9", 0, ""},
	} {
		code, out, wrong := f.run(append(strings.Fields(c.arguments), "-o", "wide")...)
		if code != exitOK || strings.Count(out, "\n") != c.lines || !strings.Contains(out, c.has) {
			t.Errorf("%s: %d, %s\n%s", c.arguments, code, wrong, out)
		}
	}
	var answer struct {
		Next   uint64
		Oldest uint64
		Events []struct {
			Number uint64
			Event  string
			Took   string
		}
	}
	if code, out, wrong = f.run("events", "-o", "json"); code != exitOK || json.Unmarshal([]byte(out), &answer) != nil {
		t.Fatalf("%d: %s%s", code, wrong, out)
	}
	if answer.Next != 6 || answer.Oldest != 1 || len(answer.Events) != 6 || answer.Events[1].Number != 2 || answer.Events[1].Took != "9.300s" {
		t.Errorf("%+v", answer)
	}
}

func TestEventsRefusesWhatIsNoSelection(t *testing.T) {
	f := newFixture(t)
	for arguments, want := range map[string]int{
		"events --since yesterday": exitUsage, "events --since -2h": exitUsage, "events --follow --limit 3": exitUsage, "events --limit 10001": exitRefused,
		"events --node ../x": exitRefused, "events --after 99": exitRefused, "events n1": exitUsage,
	} {
		if code, out, wrong := f.run(strings.Fields(arguments)...); code != want || wrong == "" {
			t.Errorf("%s: exit code %d, want %d: %s%s", arguments, code, want, out, wrong)
		}
	}
}

func TestEventsAreFollowedFromANumber(t *testing.T) {
	f := newFixture(t)
	happened(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, lines := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, Invocation{Args: []string{"events", "--follow", "--after", "3", "--profile", "mitgcm", "-o", "json"}, Stdout: lines, Stderr: io.Discard, Version: "1.2.3",
			Getenv: func(name string) string { return map[string]string{addressVariable: "unix://" + f.socket}[name] }})
	}()
	read := bufio.NewScanner(out)
	next := func() (number uint64) {
		t.Helper()
		var e struct{ Number uint64 }
		if !read.Scan() || json.Unmarshal(read.Bytes(), &e) != nil {
			t.Fatalf("line %q: %v", read.Text(), read.Err())
		}
		return e.Number
	}
	if got := next(); got != 4 {
		t.Errorf("first event %d", got)
	}
	if _, err := f.events.Commit(t.Context(), []kb.ClusterEvent{{Subject: kb.SubjectProfile, Event: kb.ChangeChanged, Kernel: kb.Ref{Profile: "mitgcm"}}}); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != 7 {
		t.Errorf("next event %d", got)
	}
	cancel()
	if code := <-ended; code != exitFailure {
		t.Errorf("exit code %d", code)
	}
}

func TestNodeShowTellsItsLastDay(t *testing.T) {
	f := newFixture(t)
	happened(t, f)
	f.nodes.list = someNodes()
	code, out, wrong := f.run("node", "show", "n1")
	if code != exitOK || !strings.Contains(strings.Join(strings.Fields(out), " "), "proven mitgcm@2 (6.1-mitgcm) (job 12) after 9.3 s") || strings.Contains(out, "seen\n") {
		t.Errorf("%d: %s\n%s", code, wrong, out)
	}
}
