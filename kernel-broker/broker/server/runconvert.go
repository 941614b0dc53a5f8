// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

var runStates = map[kb.RunState]api.RunState{
	kb.RunRequested: api.RunState_RUN_STATE_REQUESTED,
	kb.RunRunning:   api.RunState_RUN_STATE_RUNNING,
	kb.RunComplete:  api.RunState_RUN_STATE_COMPLETE,
	kb.RunPartial:   api.RunState_RUN_STATE_PARTIAL,
	kb.RunFailed:    api.RunState_RUN_STATE_FAILED,
}

var runNodeStates = map[kb.RunNodeState]api.RunNodeState{
	kb.RunNodeWaiting:   api.RunNodeState_RUN_NODE_STATE_WAITING,
	kb.RunNodeReady:     api.RunNodeState_RUN_NODE_STATE_READY,
	kb.RunNodeLooking:   api.RunNodeState_RUN_NODE_STATE_LOOKING,
	kb.RunNodeDelivered: api.RunNodeState_RUN_NODE_STATE_DELIVERED,
	kb.RunNodeFailed:    api.RunNodeState_RUN_NODE_STATE_FAILED,
	kb.RunNodeLost:      api.RunNodeState_RUN_NODE_STATE_LOST,
}

// runToProto leaves the files out for those who may not have them: who knows a
// digest can fetch what it stands for.
func runToProto(r *kb.Run, files bool) *api.Run {
	out := &api.Run{
		Id: r.ID, State: runStates[r.State], Reason: r.Reason, Collectors: r.Collectors, RequestedBy: r.RequestedBy,
		Requested: TimeToProto(r.Requested), Application: r.Application, Profile: r.Profile,
		JobId: r.Job.Job, RestartCount: r.Job.Restart, Reference: r.Reference, User: r.User, Uid: r.UID,
		KernelProfile: r.Kernel.Profile, KernelVersion: r.Kernel.Version, Began: TimeToProto(r.Began), Ended: TimeToProto(r.Ended),
	}
	for _, n := range r.Nodes {
		node := &api.RunNode{Name: n.Name, State: runNodeStates[n.State], Reason: n.Reason, Partial: n.Partial}
		for _, f := range n.Files {
			if files {
				node.Files = append(node.Files, &api.RunFile{Name: f.Name, Digest: f.Digest, Size: f.Size})
			}
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

// runReportFromProto: an agent says that it is ready, looks, or failed, or sends
// figures only.
func runReportFromProto(r *api.RunReport) (plan.RunReport, error) {
	for state, word := range runNodeStates {
		if word == r.GetState() {
			switch state {
			case kb.RunNodeReady, kb.RunNodeLooking, kb.RunNodeFailed:
				return plan.RunReport{State: state, Reason: clip(r.GetReason())}, nil
			}
		}
	}
	if r.GetState() != api.RunNodeState_RUN_NODE_STATE_UNSPECIFIED {
		return plan.RunReport{}, fmt.Errorf("run %d: state %v is not an agent's to say: %w", r.GetRunId(), r.GetState(), kb.ErrInvalid)
	}
	return plan.RunReport{}, nil
}

func runWishesToProto(wishes []controller.RunWish) *api.ConnectResponse {
	out := &api.RunWishes{}
	for _, w := range wishes {
		out.Runs = append(out.Runs, &api.RunWish{RunId: w.Run, JobId: w.Job.Job, RestartCount: w.Job.Restart,
			Uid: w.UID, Collectors: w.Collectors, Ended: w.Ended, Watched: w.Watched})
	}
	return &api.ConnectResponse{Message: &api.ConnectResponse_Runs{Runs: out}}
}
