// SPDX-License-Identifier: Apache-2.0

package convert

import (
	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

var allocationPhases = map[kb.Phase]api.AllocationPhase{
	kb.PhaseAccepted:  api.AllocationPhase_ALLOCATION_PHASE_ACCEPTED,
	kb.PhaseSwitching: api.AllocationPhase_ALLOCATION_PHASE_SWITCHING,
	kb.PhaseReady:     api.AllocationPhase_ALLOCATION_PHASE_READY,
	kb.PhaseReturning: api.AllocationPhase_ALLOCATION_PHASE_RETURNING,
	kb.PhaseDone:      api.AllocationPhase_ALLOCATION_PHASE_DONE,
	kb.PhaseFailed:    api.AllocationPhase_ALLOCATION_PHASE_FAILED,
}

// PhaseToProto converts an allocation's phase.
func PhaseToProto(p kb.Phase) api.AllocationPhase { return allocationPhases[p] }

// JobToProto converts an allocation with its timeline.
func JobToProto(a *kb.Allocation) *api.Job {
	job := &api.Job{
		JobId: a.ID.Job, RestartCount: a.ID.Restart, Reference: a.Reference, User: a.User, Uid: a.UID,
		Profile: a.Kernel.Profile, Version: a.Kernel.Version, Nodes: a.Nodes, Phase: allocationPhases[a.Phase],
		Reason: a.Reason, HandedTo: a.HandedTo,
		Before: proofsToProto(a.Had(), a.Before), During: proofsToProto(a.Had(), a.During), After: proofsToProto(a.Had(), a.After),
	}
	for _, e := range a.Timeline {
		job.Timeline = append(job.Timeline, &api.TimelineEvent{At: TimeToProto(e.At), Node: e.Node, Event: e.Event, Detail: e.Detail})
	}
	return job
}

func proofsToProto(nodes []string, proofs map[string]kb.Proof) []*api.NodeProof {
	var out []*api.NodeProof
	for _, name := range nodes {
		if p, ok := proofs[name]; ok {
			out = append(out, &api.NodeProof{Node: name, Release: p.Release, BuildId: p.BuildID, BootId: p.BootID,
				Profile: p.Ref.Profile, Version: p.Ref.Version})
		}
	}
	return out
}
