// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
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

// RunToProto leaves the files out for callers who may not have them: the digest
// is enough to fetch one.
func RunToProto(r *kb.Run, files bool) *api.Run {
	out := &api.Run{
		Id: r.ID, State: runStates[r.State], Reason: r.Reason, Collectors: r.Collectors, RequestedBy: r.RequestedBy,
		Requested: TimeToProto(r.Requested), Application: r.Application, Profile: r.Profile,
		JobId: r.Job.Job, RestartCount: r.Job.Restart, Reference: r.Reference, User: r.User, Uid: r.UID,
		KernelProfile: r.Kernel.Profile, KernelVersion: r.Kernel.Version, Began: TimeToProto(r.Began), Ended: TimeToProto(r.Ended),
	}
	for _, n := range r.Nodes {
		node := &api.RunNode{Name: n.Name, State: runNodeStates[n.State], Reason: n.Reason, Partial: n.Partial}
		if files {
			for _, f := range n.Files {
				node.Files = append(node.Files, RunFileToProto(f))
			}
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

// RunFileToProto converts a file of a run.
func RunFileToProto(f kb.Document) *api.RunFile {
	return &api.RunFile{Name: f.Name, Digest: f.Digest, Size: f.Size}
}

// runReports are the states that an agent reports of a run.
var runReports = map[api.RunNodeState]kb.RunNodeState{
	api.RunNodeState_RUN_NODE_STATE_UNSPECIFIED: "", // figures only
	api.RunNodeState_RUN_NODE_STATE_READY:       kb.RunNodeReady,
	api.RunNodeState_RUN_NODE_STATE_LOOKING:     kb.RunNodeLooking,
	api.RunNodeState_RUN_NODE_STATE_FAILED:      kb.RunNodeFailed,
}

// RunReportToProto makes the message for how far the node is with a run.
func RunReportToProto(run uint64, r kb.RunReport, figures []byte) *api.ConnectRequest {
	return &api.ConnectRequest{Message: &api.ConnectRequest_Run{
		Run: &api.RunReport{RunId: run, State: runNodeStates[r.State], Reason: r.Reason, Figures: figures}}}
}

// RunReportFromProto refuses a state that is not an agent's to report.
func RunReportFromProto(r *api.RunReport) (kb.RunReport, error) {
	state, ok := runReports[r.GetState()]
	if !ok {
		return kb.RunReport{}, fmt.Errorf("run %d: state %v is not an agent's to report: %w", r.GetRunId(), r.GetState(), kb.ErrInvalid)
	}
	return kb.RunReport{State: state, Reason: Text(r.GetReason())}, nil
}

// DesiredRunsToProto makes the message with all that is wanted of a node's collectors.
func DesiredRunsToProto(runs []kb.DesiredRun) *api.ConnectResponse {
	out := &api.RunWishes{}
	for _, r := range runs {
		out.Runs = append(out.Runs, &api.RunWish{RunId: r.Run, JobId: r.Job.Job, RestartCount: r.Job.Restart,
			Uid: r.UID, Collectors: r.Collectors, Ended: r.Ended, Watched: r.Watched})
	}
	return &api.ConnectResponse{Message: &api.ConnectResponse_Runs{Runs: out}}
}

// DesiredRunsFromProto is the inverse of DesiredRunsToProto.
func DesiredRunsFromProto(m *api.RunWishes) []kb.DesiredRun {
	var runs []kb.DesiredRun
	for _, r := range m.GetRuns() {
		runs = append(runs, kb.DesiredRun{Run: r.GetRunId(), Job: kb.JobID{Job: r.GetJobId(), Restart: r.GetRestartCount()},
			UID: r.GetUid(), Collectors: r.GetCollectors(), Ended: r.GetEnded(), Watched: r.GetWatched()})
	}
	return runs
}
