// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func job(state, reason string) kb.SlurmJob {
	return kb.SlurmJob{ID: 9, Reference: "9", State: state, Reason: reason, Partition: "batch,debug"}
}

func allocation(phase kb.Phase, proven ...string) *kb.Allocation {
	a := &kb.Allocation{Phase: phase, Kernel: kb.Kernel{Profile: "mitgcm", Version: 3}, Nodes: []string{"n1", "n2", "n3"}, Left: []string{"n3"}, Since: noon, Reason: "n2: no boot", During: map[string]kb.Proof{}}
	for _, name := range proven {
		a.During[name] = kb.Proof{}
	}
	return a
}

func TestJob(t *testing.T) {
	returning := []Node{{"n4", []string{"debug"}, noon}, {"n5", []string{"gpu"}, noon}}
	for name, c := range map[string]struct {
		facts Facts
		want  string
		nodes string
	}{
		"for resources":                      {Facts{Job: job("PENDING", "Resources"), Ahead: -1}, "Slurm, whose reason is Resources", ""},
		"for another job's return":           {Facts{Job: job("PENDING", "Resources"), Ahead: -1, Returning: returning}, "nodes that return to stock after other jobs and that it may get: 1; Slurm, whose reason is Resources", "n4"},
		"for a dependency, whatever returns": {Facts{Job: job("PENDING", "Dependency"), Ahead: -1, Returning: returning}, "Slurm, whose reason is Dependency", ""},
		"held":                               {Facts{Job: job("PENDING", "JobHeldUser"), Ahead: -1}, "a release by its user: scontrol release 9", ""},
		"held after a requeue":               {Facts{Job: job("PENDING", "job requeued in held state"), Ahead: -1}, "a release by its user: scontrol release 9", ""},
		"held by an administrator":           {Facts{Job: job("PENDING", "JobHeldAdmin"), Ahead: -1}, "a release by an administrator, who holds it", ""},
		"for a turn":                         {Facts{Job: job("CONFIGURING", "None"), Ahead: 2}, "its turn: 2 jobs get their kernels first, as many at a time as switch.at_once of broker.yaml allows", ""},
		"for boots":                          {Facts{Job: job("CONFIGURING", "None"), Ahead: -1, Allocation: allocation(kb.PhaseSwitching, "n1")}, "1 of its 3 nodes to run mitgcm@3", "n2"},
		"for a registration":                 {Facts{Job: job("CONFIGURING", "None"), Ahead: -1, Allocation: allocation(kb.PhaseSwitching, "n1", "n2")}, "the last of its nodes to be registered in Slurm on mitgcm@3", ""},
		"failed":                             {Facts{Job: job("CONFIGURING", "None"), Ahead: -1, Allocation: allocation(kb.PhaseFailed)}, "Slurm to take it off its nodes: n2: no boot", ""},
		"a plain job's boot":                 {Facts{Job: job("CONFIGURING", "None"), Ahead: -1}, "Slurm to boot its nodes or to end their prologs", ""},
		"for nothing":                        {Facts{Job: job("RUNNING", "None"), Ahead: -1, Allocation: allocation(kb.PhaseReady, "n1", "n2")}, "", ""},
	} {
		got := Job(c.facts)
		var nodes []string
		for _, n := range got.Nodes {
			nodes = append(nodes, n.Name)
		}
		if waits := strings.Join(got.Waits, "; "); waits != c.want || strings.Join(nodes, ",") != c.nodes {
			t.Errorf("%s: %q for %v", name, waits, nodes)
		}
	}
}
