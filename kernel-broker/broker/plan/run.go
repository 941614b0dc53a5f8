// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// DesiredRuns of a node, in the order of runs. A run is in it until the node has
// delivered or is given up, but not while the node is on its way to the job's
// kernel: what began on the one before would end with it. One that has been
// told stays told, since what is left out may be forgotten.
func DesiredRuns(runs map[uint64]*kb.Run, node *kb.Node) []kb.DesiredRun {
	var desired []kb.DesiredRun
	for _, id := range slices.Sorted(maps.Keys(runs)) {
		r := runs[id]
		if r.Over() || r.Job.IsZero() {
			continue
		}
		n := r.Node(node.Name)
		if n == nil || n.Settled() {
			continue
		}
		ended := n.Left || !r.Ended.IsZero()
		early := n.State == kb.RunNodeWaiting && !ended && !r.Kernel.IsStock()
		if early && (node.Pending != nil || !node.Runs(r.Kernel)) {
			continue
		}
		desired = append(desired, kb.DesiredRun{Run: id, Job: r.Job, UID: r.UID, Cgroup: r.Cgroup, Collectors: r.Collectors, Ended: ended})
	}
	return desired
}

// runRecords moves the profiling runs on. It never touches an allocation but to note
// which run it has: a job is not the profiling's to harm.
func (d *decision) runRecords(ids []kb.JobID) {
	for _, id := range ids {
		if a := d.allocs[id]; a.Run == 0 && a.Holds() {
			d.claim(a)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.runs)) {
		if r := d.runs[id]; !r.Over() {
			d.run(r)
		}
	}
}

// claim finds or makes the run of a job that gets a kernel: one that was
// recorded before the broker was killed, the oldest request that waits for such
// a job, or one of its own.
func (d *decision) claim(a *kb.Allocation) {
	var waiting *kb.Run
	refused := ""
	for _, id := range slices.Sorted(maps.Keys(d.runs)) {
		r := d.runs[id]
		if r.Job == a.ID {
			a.Run = id
			return
		}
		if waiting == nil && r.Wants(a.Kernel.Profile, a.Application) {
			waiting = r
		}
	}
	if waiting == nil {
		if len(a.Collectors) == 0 {
			return
		}
		refused = TooManyRuns(d.runs, a.User, a.UID, d.in.Config.RunsOfUser)
		waiting = &kb.Run{ID: d.nextRun, State: kb.RunRequested, Since: d.in.Now, RequestedBy: a.User, Requested: d.in.Now}
		d.runs[waiting.ID] = waiting
		d.nextRun++
	}
	for _, c := range a.Collectors {
		if !slices.Contains(waiting.Collectors, c) {
			waiting.Collectors = append(waiting.Collectors, c)
		}
	}
	waiting.Job, waiting.Reference, waiting.User, waiting.UID, waiting.Kernel = a.ID, a.Reference, a.User, a.UID, a.Kernel.Ref()
	waiting.Cgroup = a.Cgroup
	a.Run = waiting.ID
	if refused != "" {
		waiting.Enter(kb.RunFailed, d.in.Now, refused)
		a.Note(d.in.Now, "", "profiling", fmt.Sprintf("run %d: %s", waiting.ID, refused))
		return
	}
	waiting.Claim(d.in.Now, a.Nodes)
	a.Note(d.in.Now, "", "profiling", fmt.Sprintf("run %d: %s", waiting.ID, strings.Join(waiting.Collectors, ",")))
}

// TooManyRuns says why another job of a user is not profiled; empty if it is.
func TooManyRuns(runs map[uint64]*kb.Run, user string, uid uint32, limit int) string {
	under := 0
	for _, r := range runs {
		if !r.Over() && !r.Job.IsZero() && r.UID == uid {
			under++
		}
	}
	if limit == 0 || under < limit {
		return ""
	}
	return fmt.Sprintf("not profiled: %d profiling runs of user %s are under way, the limit (runs.of_user of broker.yaml); submit the job again when they are over", under, user)
}

func (d *decision) run(r *kb.Run) {
	if r.Job.IsZero() {
		if d.in.Now.Sub(r.Requested) > d.in.Config.RunRequestLimit {
			r.Enter(kb.RunFailed, d.in.Now, fmt.Sprintf("no job of %s%s came within %v", r.Application, r.Profile, d.in.Config.RunRequestLimit))
		}
		return
	}
	for i := range r.Nodes {
		d.runNode(r, &r.Nodes[i])
	}
	job, known := d.in.Slurm.Jobs[r.Job.Job]
	known = known && job.Restart == r.Job.Restart
	if known {
		d.shrinkRun(r, job)
	}
	if r.State == kb.RunRequested && (known && job.Running() || seen(r)) {
		r.Began = d.in.Now
		r.Enter(kb.RunRunning, d.in.Now, "")
	}
	if r.Ended.IsZero() && d.in.Slurm.At.After(r.Claimed) && (!known || !job.Holds()) {
		if r.State == kb.RunRequested && (r.Application != "" || r.Profile != "") {
			unclaim(r)
			return
		}
		r.Ended = d.in.Now
	}
	if slices.ContainsFunc(r.Nodes, func(n kb.RunNode) bool { return !n.Settled() }) {
		return
	}
	finish(r, d.in.Now)
}

// unclaim lets a request wait on: its job left before it began.
func unclaim(r *kb.Run) {
	r.Job, r.Reference, r.User, r.UID, r.Kernel = kb.JobID{}, "", "", 0, kb.Ref{}
	r.Nodes, r.Claimed, r.Cgroup = nil, time.Time{}, ""
}

// seen: an agent saw what slurmctld showed too shortly.
func seen(r *kb.Run) bool {
	return slices.ContainsFunc(r.Nodes, func(n kb.RunNode) bool {
		return n.State == kb.RunNodeLooking || n.State == kb.RunNodeDelivered
	})
}

// runStep is how long a node at least counts as looking: the steps of a job may
// come and go quickly, and each report that is taken in writes the record of all
// the run's nodes.
const runStep = 10 * time.Second

// runNode takes in what the node's agent says. That it has delivered is not its
// to say: that stands in the record when the files are stored.
func (d *decision) runNode(r *kb.Run, n *kb.RunNode) {
	if n.Settled() {
		return
	}
	agent := d.in.Agents[n.Name]
	report := agent.Runs[r.ID]
	switch report.State {
	case kb.RunNodeReady, kb.RunNodeLooking, kb.RunNodeFailed:
		back := n.State == kb.RunNodeLooking && report.State == kb.RunNodeReady
		if n.State != report.State && (!back || d.in.Now.Sub(n.Since) >= runStep) {
			n.State, n.Reason, n.Since = report.State, report.Reason, d.in.Now
		}
	}
	if n.Settled() || r.Ended.IsZero() || d.age(r.Ended) <= d.in.Config.RunDeliverLimit {
		return
	}
	n.State, n.Since = kb.RunNodeLost, d.in.Now
	n.Reason = fmt.Sprintf("delivered nothing within %v of the job's end", d.in.Config.RunDeliverLimit)
	if !agent.Connected {
		n.Reason += ", its agent is away"
		if !agent.Since.IsZero() {
			n.Reason += " since " + agent.Since.UTC().Format(time.RFC3339)
		}
	}
}

// finish judges a run of which nothing more is awaited.
func finish(r *kb.Run, now time.Time) {
	if r.Ended.IsZero() {
		r.Ended = now
	}
	delivered, state := 0, kb.RunComplete
	var reasons []string
	for _, n := range r.Nodes {
		switch {
		case n.State != kb.RunNodeDelivered:
			reasons = append(reasons, fmt.Sprintf("%s: %s: %s", n.Name, n.State, n.Reason))
		case n.Partial != "":
			reasons = append(reasons, fmt.Sprintf("%s: %s", n.Name, n.Partial))
			delivered++
		default:
			delivered++
		}
	}
	if len(reasons) > 0 {
		state = kb.RunPartial
	}
	if delivered == 0 {
		state = kb.RunFailed
	}
	r.Enter(state, now, clip(strings.Join(reasons, "; ")))
}

// maxRunReason of many nodes together.
const maxRunReason = 1000

func clip(text string) string {
	if len(text) <= maxRunReason {
		return text
	}
	return text[:maxRunReason] + " ..."
}
