// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// line of a node as scontrol prints it.
func line(name, state, load, reason string) string {
	if reason != "" {
		reason = " Reason=" + reason + " [root@2026-11-20T12:00:00]"
	}
	return fmt.Sprintf("NodeName=%s Arch=x86_64 CPUTot=4 CPULoad=%s ActiveFeatures=gpu,ib OS=Linux 6.1 State=IDLE  RealMemory=1024 AllocMem=0 FreeMem=10 "+
		"Sockets=2 Boards=1 State=%s Partitions=main,long%s\n", name, load, state, reason)
}

// Whatever changes between polls, a row reads as if it were read for the first time; nodes that are gone are forgotten.
func TestRowsReadAsTheLineSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRows()
		for range rapid.IntRange(1, 6).Draw(t, "polls") {
			got := map[string]kb.SlurmNode{}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"n1", "n2", "n10", "m1"}), 0, 4, rapid.ID[string]).Draw(t, "nodes") {
				text := line(name, rapid.SampledFrom([]string{"IDLE", "IDLE+DRAIN", "DOWN*", "ALLOCATED+POWERING_UP"}).Draw(t, "state"),
					rapid.SampledFrom([]string{"0.1", "0.2"}).Draw(t, "load"), rapid.SampledFrom([]string{"", "a fan", "NodeName=n1 State=IDLE"}).Draw(t, "reason"))
				node, ok := r.read([]byte(text))
				want, _ := scontrol.ParseNode(text)
				if !ok || !node.Equal(want) {
					t.Fatalf("%q reads as %+v, want %+v", text, node, want)
				}
				got[name] = node
			}
			if r.keep(got); r.size() != len(got) {
				t.Fatalf("%d nodes known, %d were listed", r.size(), len(got))
			}
		}
	})
}

// Neither further lines of a reason nor what is no node become one.
func TestRowsPassOverOtherLines(t *testing.T) {
	r := newRows()
	for _, text := range []string{"", "\n", "        a second line of a reason\n", "NodeName=\n", "NodeName=n1\n", "Node n1 not found\n"} {
		if node, ok := r.read([]byte(text)); ok {
			t.Errorf("%q is node %+v", text, node)
		}
	}
	if r.size() != 0 {
		t.Errorf("%d nodes known", r.size())
	}
}

// What a poll of ten thousand nodes costs beside slurmctld's part, where nothing has changed since the last one.
func BenchmarkReadUnchangedRows(b *testing.B) {
	r := newRows()
	var lines [][]byte
	for i := range 10_000 {
		lines = append(lines, []byte(line(fmt.Sprintf("n%05d", i), "IDLE", "0.1", strings.Repeat("x", 600))))
	}
	read := func() {
		nodes := make(map[string]kb.SlurmNode, r.size())
		for text := range slices.Values(lines) {
			node, _ := r.read(text)
			nodes[node.Name] = node
		}
	}
	read()
	b.ReportAllocs()
	for b.Loop() {
		read()
	}
}
