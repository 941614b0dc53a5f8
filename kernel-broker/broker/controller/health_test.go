// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Health names the nodes to which Slurm gives no job and which no boot brings back: not those that are armed, that boot, or that
// the broker does not know; at most eight.
func TestHealthNamesNodesThatAreOut(t *testing.T) {
	armed := kb.SlurmNode{State: "IDLE", Flags: []string{"DRAIN", "REBOOT_REQUESTED"}}
	for name, c := range map[string]struct {
		nodes map[string]kb.SlurmNode
		says  string
	}{
		"in service":       {map[string]kb.SlurmNode{"n1": {State: "IDLE"}, "n2": {State: "ALLOCATED"}}, ""},
		"armed, in a boot": {map[string]kb.SlurmNode{"n1": armed, "n2": {State: "DOWN", Flags: []string{"REBOOT_ISSUED"}}}, ""},
		"drained and down": {map[string]kb.SlurmNode{"n1": {State: "IDLE", Flags: []string{"DRAIN"}}, "n2": {State: "DOWN"}, "n3": {State: "IDLE"}}, "drained or down: n1, n2 ("},
		"nine are down":    {downNodes(9), "drained or down: n1, n2, n3, n4, n5, n6, n7, n8 and 1 more ("},
	} {
		t.Run(name, func(t *testing.T) {
			controller := &Controller{}
			controller.records.nodes = map[string]*kb.Node{}
			controller.view.Nodes = map[string]kb.SlurmNode{"unknown": {Name: "unknown", State: "DOWN"}}
			for node, seen := range c.nodes {
				seen.Name = node
				controller.records.nodes[node], controller.view.Nodes[node] = &kb.Node{Name: node}, seen
			}
			got := controller.outLocked()
			if (c.says == "") != (got == "") || !strings.Contains(got, c.says) {
				t.Errorf("health says %q", got)
			}
		})
	}
}

func downNodes(n int) map[string]kb.SlurmNode {
	nodes := map[string]kb.SlurmNode{}
	for i := range n {
		nodes[fmt.Sprintf("n%d", i+1)] = kb.SlurmNode{State: "DOWN"}
	}
	return nodes
}

// Health names the first job whose row cannot be read, whether it waits or has nodes.
func TestHealthNamesUnreadableJobs(t *testing.T) {
	controller := &Controller{}
	controller.view.Jobs = map[uint32]kb.SlurmJob{7: {ID: 7, Reference: "7"}}
	if got := controller.unreadLocked(); got != "" {
		t.Errorf("health says %q", got)
	}
	controller.view.Jobs[12] = kb.SlurmJob{ID: 12, Reference: "12", Unread: "an odd list"}
	controller.view.Queue = []kb.SlurmJob{{ID: 9, Reference: "9_1", Unread: "another length"}}
	if got := controller.unreadLocked(); !strings.Contains(got, "no kernel: 2, the first is 9_1 (another length)") {
		t.Errorf("health says %q", got)
	}
}
