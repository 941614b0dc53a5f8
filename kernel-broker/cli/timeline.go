// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"slices"
	"strings"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// jobPage prints a job: user, nodes, and each step with its duration.
func jobPage(p *page, j *api.Job) {
	p.row("Job:", reference(j))
	p.row("Restart:", j.GetRestartCount())
	p.row("User:", j.GetUser())
	p.row("Kernel:", kernelRef(j.GetProfile(), j.GetVersion()))
	p.row("Nodes:", strings.Join(j.GetNodes(), " "))
	p.row("Phase:", jobPhase(j))
	p.row("Reason:", j.GetReason())
	p.row("Begun:", clock(begin(j)))
	p.row("Ready after:", untilReady(j))
	if j.GetHandedTo() != "" {
		p.row("Nodes handed to job:", j.GetHandedTo())
	}
	for _, node := range nodesOf(j) {
		p.line("")
		if node == "" {
			p.line("The job")
		} else {
			p.line("Node %s", node)
		}
		p.row("AT", "STEP", "TOOK", "DETAIL")
		// Events before a node's first step belong to the start of the job.
		last, first := begin(j), node == ""
		for _, e := range j.GetTimeline() {
			if e.GetNode() != node {
				continue
			}
			at, took := e.GetAt().AsTime(), ""
			if !first {
				took = seconds(at.Sub(last))
			}
			p.row("+"+seconds(at.Sub(begin(j))), e.GetEvent(), took, e.GetDetail())
			last, first = at, false
		}
	}
	if len(j.GetBefore())+len(j.GetDuring())+len(j.GetAfter()) > 0 {
		p.line("\nKernels that the nodes proved to run")
		p.row("NODE", "WHEN", "KERNEL", "RELEASE", "BUILD ID", "BOOT ID")
		for _, node := range j.GetNodes() {
			proofRow(p, node, "before", j.GetBefore())
			proofRow(p, node, "during", j.GetDuring())
			proofRow(p, node, "after", j.GetAfter())
		}
	}
}

func proofRow(p *page, node, when string, proofs []*api.NodeProof) {
	for _, proof := range proofs {
		if proof.GetNode() == node {
			p.row(node, when, kernelRef(proof.GetProfile(), proof.GetVersion()), proof.GetRelease(), short(proof.GetBuildId()), proof.GetBootId())
		}
	}
}

// nodesOf returns the subjects of the timeline: the job as a whole, which is "", then the nodes in the job's order, then
// others.
func nodesOf(j *api.Job) []string {
	seen := map[string]bool{}
	for _, e := range j.GetTimeline() {
		seen[e.GetNode()] = true
	}
	var nodes []string
	for _, node := range append([]string{""}, j.GetNodes()...) {
		if seen[node] {
			nodes = append(nodes, node)
			delete(seen, node)
		}
	}
	return append(nodes, slices.Sorted(maps.Keys(seen))...)
}
