// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// mostSlow is how many of a job's nodes are shown step by step.
const mostSlow = 5

func jobRows(p *page, jobs []*api.Job) {
	p.head("JOB", wide+"RESTART", "USER", "KERNEL", "PHASE", zoned("BEGUN", newest(jobs, begin)), "READY AFTER", "NODES", below+"REASON")
	for _, j := range jobs {
		p.row(convert.JobName(j), j.GetRestartCount(), j.GetUser(), kernelRef(j.GetProfile(), j.GetVersion()), jobPhase(j),
			minute(begin(j)), untilReady(j), hostlist.Compress(j.GetNodes()), j.GetReason())
	}
}

// jobPage prints a job: user, nodes, and each step with its duration; of many nodes those that took longest, unless all
// are to be shown.
func jobPage(p *page, j *api.Job, all bool) {
	p.row("Job:", convert.JobName(j))
	p.row("Restart:", j.GetRestartCount())
	p.row("User:", j.GetUser())
	p.row("Kernel:", kernelRef(j.GetProfile(), j.GetVersion()))
	p.row("Nodes:", hostlist.Compress(j.GetNodes()))
	p.row("Phase:", jobPhase(j))
	p.field("Reason:", j.GetReason())
	p.row("Begun:", clock(begin(j)))
	p.row("Ready after:", untilReady(j))
	p.field("Nodes handed to job:", j.GetHandedTo())
	if waits := waitsOf(j, time.Now()); len(waits) > 0 {
		p.line("")
		p.head("WAITED FOR", "TOOK")
		for _, w := range waits {
			p.row(w.what, rounded.Time(w.took))
		}
	}
	nodes := nodesOf(j)
	shown := nodes
	if !all {
		shown = slowest(j, nodes)
	}
	for _, node := range shown {
		p.line("")
		if node == "" {
			p.line("The job")
		} else {
			p.line("Node %s", node)
		}
		stepRows(p, j, node)
	}
	if left := without(nodes, shown); len(left) > 0 {
		p.line("")
		p.sentence("The %d nodes above took longest; --all shows the other %d: %s", mostSlow, len(left), hostlist.Compress(left))
	}
	if len(j.GetBefore())+len(j.GetDuring())+len(j.GetAfter()) > 0 {
		p.line("\nKernels that the nodes proved to run")
		if all {
			p.head("NODE", "WHEN", "KERNEL", "RELEASE", "BUILD ID", "BOOT ID")
		} else {
			p.head("NODES", "WHEN", "KERNEL", "RELEASE", "BUILD ID", wide+"BOOT ID")
		}
		proofRows(p, "before", j.GetBefore(), all)
		proofRows(p, "during", j.GetDuring(), all)
		proofRows(p, "after", j.GetAfter(), all)
	}
}

// wait is something that a job waited for.
type wait struct {
	what string
	took time.Duration
}

// waitsOf says what a job waited for from its start in Slurm until it had its kernel: one after the other.
func waitsOf(j *api.Job, now time.Time) (waits []wait) {
	if len(j.GetTimeline()) == 0 {
		return nil
	}
	turn, over := stepsOf(j, now)
	proven, last := over, "" // of a job without its kernel nobody knows the last node
	if _, ready := switchTime(j); ready {
		proven = turn
	}
	for _, e := range j.GetTimeline() {
		if at := e.GetAt().AsTime(); e.GetEvent() == "attested" && at.After(proven) && !at.After(over) {
			proven, last = at, ", the last of "+e.GetNode()
		}
	}
	for _, w := range []wait{
		{"its turn: other jobs switched first", turn.Sub(begin(j))},
		{"the nodes to boot" + last, proven.Sub(turn)},
		{"Slurm to register the nodes", over.Sub(proven)},
	} {
		if w.took >= 100*time.Millisecond { // less is no wait to anybody
			waits = append(waits, w)
		}
	}
	return waits
}

func stepRows(p *page, j *api.Job, node string) {
	p.head("AT", "STEP", "TOOK", "DETAIL")
	// Events before a node's first step belong to the start of the job.
	last, first := begin(j), node == ""
	for _, e := range j.GetTimeline() {
		if e.GetNode() != node {
			continue
		}
		at, took := e.GetAt().AsTime(), ""
		if !first {
			took = rounded.Time(at.Sub(last))
		}
		p.row("+"+rounded.Time(at.Sub(begin(j))), e.GetEvent(), took, e.GetDetail())
		last, first = at, false
	}
}

// proofRows shows nodes that proved the same kernel together, unless each is to be shown.
func proofRows(p *page, when string, proofs []*api.NodeProof, all bool) {
	type kernel struct{ ref, release, build, boot string }
	nodes := map[kernel][]string{}
	var order []kernel
	for _, proof := range proofs {
		k := kernel{kernelRef(proof.GetProfile(), proof.GetVersion()), proof.GetRelease(), proof.GetBuildId(), ""}
		if all || p.width == 0 {
			k.boot = proof.GetBootId()
		}
		if nodes[k] == nil {
			order = append(order, k)
		}
		nodes[k] = append(nodes[k], proof.GetNode())
	}
	slices.SortStableFunc(order, func(a, b kernel) int { return hostlist.Natural(nodes[a][0], nodes[b][0]) })
	for _, k := range order {
		p.row(hostlist.Compress(nodes[k]), when, k.ref, k.release, short(k.build), k.boot)
	}
}

// nodesOf returns the subjects of the timeline: the job as a whole, which is "", then the nodes in their natural order.
func nodesOf(j *api.Job) []string {
	seen := map[string]bool{}
	for _, e := range j.GetTimeline() {
		seen[e.GetNode()] = true
	}
	return slices.SortedFunc(maps.Keys(seen), hostlist.Natural)
}

// slowest returns the job and those of its nodes that were last to be ready, or are not ready yet.
func slowest(j *api.Job, nodes []string) []string {
	whole := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return node != "" })
	nodes = nodes[len(whole):]
	if len(nodes) <= mostSlow {
		return append(whole, nodes...)
	}
	ready := map[string]time.Time{}
	for _, e := range j.GetTimeline() {
		if e.GetNode() != "" && e.GetEvent() == "registered" {
			ready[e.GetNode()] = e.GetAt().AsTime()
		}
	}
	slow := slices.Clone(nodes)
	slices.SortStableFunc(slow, func(a, b string) int {
		// No time is the zero time: such a node stands in front.
		return cmp.Or(cmp.Compare(either(ready[a].IsZero(), "0", "1"), either(ready[b].IsZero(), "0", "1")), ready[b].Compare(ready[a]))
	})
	return append(whole, slow[:mostSlow]...)
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(some, one) })
}

// untilReady is the time that the user waited for the kernel.
func untilReady(j *api.Job) string {
	if took, ready := switchTime(j); ready {
		return rounded.Time(took)
	}
	return ""
}

// switchTime of a job that got its kernel.
func switchTime(j *api.Job) (time.Duration, bool) {
	for _, e := range j.GetTimeline() {
		if e.GetNode() == "" && e.GetEvent() == "ready" {
			return e.GetAt().AsTime().Sub(begin(j)), true
		}
	}
	return 0, false
}
