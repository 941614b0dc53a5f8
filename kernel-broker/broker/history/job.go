// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// Job tells what happened between a job's record and its next one. was is nil if there was none.
func Job(was, is *kb.Allocation, now time.Time) []kb.ClusterEvent {
	uid := is.UID
	var events []kb.ClusterEvent
	add := func(e kb.ClusterEvent) {
		e.Subject, e.Job, e.UID, e.User, e.Kernel = kb.SubjectJob, is.ID, &uid, is.User, is.Kernel.Ref()
		e.Who = cmp.Or(e.Who, broker)
		if e.At.IsZero() {
			e.At = now
		}
		events = append(events, e)
	}
	if was == nil {
		if is.Phase == kb.PhaseFailed && is.Closed {
			add(kb.ClusterEvent{At: is.Created, Event: kb.JobRefused, Why: is.Reason})
			return events
		}
		add(kb.ClusterEvent{At: is.Created, Event: string(kb.PhaseAccepted), Who: is.User, To: hostlist.Compress(is.Nodes)})
		was = &kb.Allocation{Phase: kb.PhaseAccepted}
	}
	if is.Phase != was.Phase {
		add(kb.ClusterEvent{At: is.Since, Event: string(is.Phase), From: string(was.Phase), To: string(is.Phase), Why: is.Reason, Took: phaseTook(was, is)})
	}
	for _, step := range []struct {
		due   bool
		event kb.ClusterEvent
	}{
		{is.Seen && !was.Seen, kb.ClusterEvent{Event: kb.JobRunning, Who: slurmctld}},
		{is.Suspended && !was.Suspended, kb.ClusterEvent{Event: kb.JobSuspended, Who: slurmctld}},
		{!is.Suspended && was.Suspended, kb.ClusterEvent{Event: kb.JobResumed, Who: slurmctld}},
		{is.Requeued && !was.Requeued && is.Hold, kb.ClusterEvent{Event: kb.JobHeld, Why: is.Reason}},
		{is.Requeued && !was.Requeued && !is.Hold, kb.ClusterEvent{Event: kb.JobRequeued, Why: is.Reason}},
		{is.HandedTo != "" && was.HandedTo == "", kb.ClusterEvent{Event: kb.JobHandedOver, To: "job " + is.HandedTo}},
	} {
		if step.due {
			add(step.event)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is.Lost)) {
		if !was.HasLost(name) {
			add(kb.ClusterEvent{At: is.LostAt[name], Node: name, Event: kb.NodeKernelLost, Why: is.Lost[name]})
			events[len(events)-1].Subject = kb.SubjectNode
		}
	}
	return events
}

// phaseTook is how long it took from the request to the kernel, or until the job had none, and from the job's end to the last node's return.
func phaseTook(was, is *kb.Allocation) time.Duration {
	switch {
	case is.Phase == kb.PhaseReady, is.Phase == kb.PhaseFailed, is.Phase == kb.PhaseReturning && was.Phase != kb.PhaseReady:
		return between(is.Created, is.Since)
	case is.Phase == kb.PhaseDone:
		return between(is.Ended, is.Since)
	}
	return 0
}
