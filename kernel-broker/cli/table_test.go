// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// A table with a header is never wider than its page, and what its cells say is all there.
func TestTablesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 9).Draw(t, "columns")
		width := rapid.IntRange(40, 200).Draw(t, "width")
		p := &page{width: width}
		titles := make([]string, columns)
		for i := range titles {
			titles[i] = strings.ToUpper(rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "title"))
		}
		if rapid.Bool().Draw(t, "with a sentence") && columns > 1 {
			titles[columns-1] = below + titles[columns-1]
		}
		p.head(titles...)
		var said []string
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			cells := make([]any, columns)
			for i := range cells {
				cell := rapid.StringMatching(`([a-z0-9@]{1,30}[ ,+]){0,6}[a-z]{1,20}`).Draw(t, "cell")
				cells[i] = cell
				if columns == 1 {
					said = append(said, strings.Fields(cell)...)
				}
			}
			p.row(cells...)
		}
		p.flush()
		for line := range strings.Lines(p.text.String()) {
			if got := text.StringWidth(strings.TrimRight(line, "\n")); got > width {
				t.Fatalf("%d columns in a page of %d:\n%s", got, width, p.text.String())
			}
		}
		shown := strings.Join(strings.Fields(p.text.String()), "")
		for _, word := range said {
			if !strings.Contains(shown, word) {
				t.Fatalf("%q is not in\n%s", word, p.text.String())
			}
		}
	})
}

func TestTables(t *testing.T) {
	fill := func(p *page) {
		p.head("JOB", wide+"USER", "NODES", "EMPTY", below+"REASON")
		p.row("12", "alice", "n[1-3],gpu[10-20],login[1-2],n[7-8]", "", "")
		p.row("13", "bob", "n9", "", "its nodes lack a driver")
	}
	for width, want := range map[int]string{
		0: "JOB  USER   NODES                                EMPTY  REASON\n" +
			"12   alice  n[1-3],gpu[10-20],login[1-2],n[7-8]  -      -\n" +
			"13   bob    n9                                   -      its nodes lack a driver\n",
		80: "JOB  NODES                                REASON\n" +
			"12   n[1-3],gpu[10-20],login[1-2],n[7-8]  -\n" +
			"13   n9                                   its nodes lack a driver\n",
		30: "JOB  NODES\n12   n[1-3],gpu[10-20],\n     login[1-2],n[7-8]\n13   n9\n    its nodes lack a driver\n",
	} {
		p := &page{width: width}
		fill(p)
		p.flush()
		if got := p.text.String(); got != want {
			t.Errorf("in %d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
}

// A value that people copy is not broken.
func TestFieldsStayWhole(t *testing.T) {
	p := &page{width: 80}
	digest := strings.Repeat("ab", 50)
	p.row("Digest:", digest)
	p.flush()
	if !strings.Contains(p.text.String(), digest) {
		t.Error(p.text.String())
	}
}

// Of a wide job the slowest nodes are shown, and one that is not ready before those that are.
func TestWideJob(t *testing.T) {
	f := newFixture(t)
	job := &api.Job{JobId: 7, User: "alice", Profile: "mitgcm", Version: 1, Phase: api.AllocationPhase_ALLOCATION_PHASE_SWITCHING}
	note := func(seconds int, node, event string) {
		job.Timeline = append(job.Timeline, &api.TimelineEvent{At: timestamppb.New(noon.Add(time.Duration(seconds) * time.Second)), Node: node, Event: event})
	}
	note(0, "", "accepted")
	for i := 1; i <= 40; i++ {
		node := fmt.Sprintf("n%d", i)
		job.Nodes = append(job.Nodes, node)
		note(1, node, "loaded")
		if i != 17 {
			note(20+i%10, node, "registered")
		}
		job.Before = append(job.Before, &api.NodeProof{Node: node, Profile: "stock", Version: 1, Release: "6.1", BuildId: "abcd", BootId: "boot " + node})
	}
	f.jobs.list = []*api.Job{job}
	out := f.must(0, "", "job", "show", "7")
	for _, words := range []string{"Node n17\n", "Node n9\n", "Node n19\n", "Node n29\n", "Node n39\n", "n[1-40]  before  stock@1",
		"--all shows the other 35: n[1-8,10-16,18,20-28,30-38,40]"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(words), " ")) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	if lines := strings.Count(out, "\n"); lines > 50 {
		t.Errorf("%d lines:\n%s", lines, out)
	}
	if first, second := strings.Index(out, "Node n17"), strings.Index(out, "Node n9"); first > second {
		t.Errorf("the node that is not ready is not the first:\n%s", out)
	}
	for line := range strings.Lines(out) {
		if len(line) > columnWidth+1 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	all := f.must(0, "", "job", "show", "7", "--all")
	if strings.Index(all, "Node n2\n") > strings.Index(all, "Node n10\n") || !strings.Contains(all, "boot n33") {
		t.Errorf("all nodes:\n%s", all)
	}
}

// Nodes of which the same is true are one row, in the order in which people count.
func TestNodesTogether(t *testing.T) {
	f := newFixture(t)
	for i := 1; i <= 4000; i++ {
		n := &api.Node{Name: fmt.Sprintf("n%d", i), Phase: api.NodePhase_NODE_PHASE_STEADY, RunningProfile: "stock", RunningVersion: 1,
			DesiredProfile: "stock", DesiredVersion: 1, Attested: true, Connected: true, SlurmState: "IDLE"}
		if i == 10 || i == 2 {
			n.JobId = 5
		}
		f.nodes.list = append(f.nodes.list, n)
	}
	want := "NODES           PHASE   RUNS     PROVEN  JOB  AGENT      SLURM\n" +
		"n[1,3-9,11-4000]  steady  stock@1  yes     -    connected  IDLE\n" +
		"n[2,10]         steady  stock@1  yes     5    connected  IDLE\n"
	if got := f.must(0, "", "node", "list"); strings.Join(strings.Fields(got), "") != strings.Join(strings.Fields(want), "") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	all := f.must(0, "", "node", "list", "-o", "wide")
	if strings.Count(all, "\n") != 4001 || strings.Index(all, "\nn9 ") > strings.Index(all, "\nn10 ") {
		t.Errorf("%d lines for 4000 nodes, or in another order", strings.Count(all, "\n"))
	}
}
