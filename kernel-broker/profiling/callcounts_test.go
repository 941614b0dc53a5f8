// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

func counted() *CallCounts {
	return &CallCounts{Calls: 9, Lost: 1, Edges: []CallCount{{"do_syscall_64", "ksys_write", 5}, {"ksys_write", "vfs_write", 3}, {"vfs_writev", "vfs_write", 1}}}
}

func TestCallsOfAllNodesAddUp(t *testing.T) {
	other := &CallCounts{Calls: 5, Edges: []CallCount{{"ksys_write", "vfs_write", 4}, {"do_syscall_64", "ksys_read", 1}}}
	sum := addup.Plus(counted(), other)
	want := []CallCount{{"ksys_write", "vfs_write", 7}, {"do_syscall_64", "ksys_write", 5}, {"do_syscall_64", "ksys_read", 1}, {"vfs_writev", "vfs_write", 1}}
	if sum.Calls != 14 || sum.Lost != 1 || !slices.Equal(sum.Edges, want) {
		t.Errorf("%+v", sum)
	}
	if got, want := sum.Functions(), []Called{{"vfs_write", 8}, {"ksys_write", 5}, {"ksys_read", 1}}; !slices.Equal(got, want) {
		t.Errorf("functions: %v, want %v", got, want)
	}
}

func TestCallsBound(t *testing.T) {
	c := counted()
	c.Bound(1)
	if c.Calls != 5 || c.Lost != 5 || len(c.Edges) != 1 || c.Edges[0].To != "ksys_write" {
		t.Errorf("%+v", c)
	}
}

func TestCallsDrawn(t *testing.T) {
	var out strings.Builder
	if err := counted().WriteDOT(&out, 0.3); err != nil {
		t.Fatal(err)
	}
	const want = `digraph kernel {
	node [shape=box, fontname="sans-serif"];
	"do_syscall_64" -> "ksys_write" [label="5", penwidth=3.22];
	"ksys_write" -> "vfs_write" [label="3", penwidth=2.33];
}
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
