// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// versions of Slurm whose output is in testdata/real: a job that runs, ones that wait for resources, a dependency or a node, a
// held array and a heterogeneous job; a node with a comment, a drained one with every text, and a reserved one.
var versions = []string{"22.05", "24.11", "26.05"}

func realOutput(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/real/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func realNodes(out string) []kb.SlurmNode {
	var nodes []kb.SlurmNode
	for line := range strings.Lines(out) {
		if n, ok := scontrol.ParseNode(line); ok {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func TestOutputOfEachVersion(t *testing.T) {
	for _, version := range versions {
		jobs, err := parseJobs(realOutput(t, version+".squeue"))
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		var got []string
		for _, j := range jobs {
			got = append(got, j.Reference+" "+j.State+" "+strings.Join(j.Nodes, ",")+" "+j.User)
			if j.Unread != "" || j.UID != 20001 || j.Partition != "main" || j.Reservation != "" || j.Reboot != (j.ID == 2 || j.ID == 4) || !j.Requeue {
				t.Errorf("%s: %+v", version, j)
			}
		}
		slices.Sort(got)
		want := []string{"1 RUNNING n1 alice", "2 PENDING  alice", "3_1 PENDING  alice", "3_2 PENDING  alice", "3_3 PENDING  alice", "4 PENDING  alice", "5+0 PENDING  alice", "5+1 PENDING  alice", "7 PENDING  alice"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", version, got)
		}
		nodes := realNodes(realOutput(t, version+".nodes"))
		if len(nodes) != 3 || nodes[0].State != "MIXED" || nodes[0].Reason != "" || nodes[1].State != "IDLE" || !nodes[1].Drained() || !nodes[2].Reserved() {
			t.Fatalf("%s: %+v", version, nodes)
		}
		if n := nodes[1]; n.Reason != "bad | DIMM=1 [x@y] State=IDLE" || !strings.HasPrefix(n.By, "root@2026-11-29T") || !slices.Equal(n.Partitions, []string{"main", "shared"}) || n.CPUs != 2 {
			t.Errorf("%s: %+v", version, n)
		}
	}
}

// printed is a text as squeue prints it into a column.
func printed(text string, width int) string {
	return text[:min(len(text), width)] + strings.Repeat(" ", max(0, width-len(text)))
}

// FuzzTextsOfEachVersion puts any text into what a user, a node or a script can set in the output of three versions: every
// other job and node is read as before, and at most the row itself is lost.
func FuzzTextsOfEachVersion(f *testing.F) {
	for _, text := range []string{
		"", " ", "two\nlines", "a | b|c", "State=DOWN", "n[1-", "kernel-broker: x [slurm@2026-01-01T00:00:00]", "\n1|1|N/A|N/A|N/A|0|RUNNING|0|1|1|0|1|n9|",
		"größe … \xff", strings.Repeat("x", 1<<16), "NodeName=n9 State=IDLE", "(null)", "\n\n",
	} {
		f.Add(text)
	}
	type output struct {
		squeue, nodes string
		jobs          []kb.SlurmJob
		parsed        []kb.SlurmNode
	}
	outputs := map[string]output{}
	for _, version := range versions {
		o := output{squeue: realOutput(f, version+".squeue"), nodes: realOutput(f, version+".nodes")}
		jobs, err := parseJobs(o.squeue)
		if err != nil {
			f.Fatal(err)
		}
		o.jobs, o.parsed = jobs, realNodes(o.nodes)
		outputs[version] = o
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\x00") {
			return // no text of C's
		}
		for _, version := range versions {
			o := outputs[version]
			rows := slices.Collect(strings.Lines(o.squeue))
			for i, row := range rows {
				row = strings.TrimSuffix(row, "\n")
				texts := ""
				for _, c := range jobTexts {
					texts += printed(text, c.width)
				}
				changed := slices.Clone(rows)
				changed[i] = row[:len(row)-jobTextWidth] + texts + "\n"
				jobs, err := parseJobs(strings.Join(changed, ""))
				if err != nil || len(jobs) != len(o.jobs) {
					t.Fatalf("%s, row %d: %d jobs, %v", version, i, len(jobs), err)
				}
				for k, j := range jobs {
					want := o.jobs[k]
					if k == i {
						want.User, want.Partition, want.Reservation, want.Reason = j.User, j.Partition, j.Reservation, j.Reason
					}
					if !reflect.DeepEqual(j, want) {
						t.Fatalf("%s, row %d: job %+v, want %+v", version, i, j, want)
					}
				}
			}
			changed := strings.NewReplacer("bad | DIMM=1 [x@y] State=IDLE", text, "spare | parts [root@2026-01-01T00:00:00] Reason=y", text, `{"rack":"a b","Reason":"z"}`, text, "only a comment", text).Replace(o.nodes)
			checkNodes(t, version, realNodes(changed), o.parsed, text)
			// The root of a node says what its system is, and may lose its row.
			system := realNodes(strings.Replace(o.nodes, "OS=Linux", "OS="+text, 1))
			if len(system) == len(o.parsed) {
				system = system[1:]
			}
			checkNodes(t, version, system, o.parsed[1:], text)
		}
	})
}

// checkNodes requires the nodes that were there, but for the words about them. Who may set a node's words, an administrator,
// can write a whole node's line into them.
func checkNodes(t *testing.T, version string, got, want []kb.SlurmNode, text string) {
	t.Helper()
	if strings.Contains("\n"+text, "\nNodeName=") {
		return
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d nodes with %.80q", version, len(got), text)
	}
	for i, n := range got {
		w := want[i]
		w.Reason, w.By = n.Reason, n.By
		if !reflect.DeepEqual(n, w) {
			t.Fatalf("%s: node %+v with %.80q, want %+v", version, n, text, w)
		}
	}
}
