// SPDX-License-Identifier: Apache-2.0

// Package convert maps the API to the domain and back. Conversions are total:
// they check nothing, and what protobuf has and the domain has not (an
// unspecified enum) becomes a value that the domain's Validate refuses. Reports
// of agents are the exception: what an agent may not report is an error.
package convert

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// TimeToProto leaves the zero time out.
func TimeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// TimeFromProto is the inverse of TimeToProto; the result is in UTC.
func TimeFromProto(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// Word is the text that users read for an enum: SAME_PROFILE, same-profile.
func Word(e protoreflect.Enum) string { return WordOf(e.Descriptor(), e.Number()) }

// WordOf is Word of an enum's number.
func WordOf(e protoreflect.EnumDescriptor, number protoreflect.EnumNumber) string {
	values := e.Values()
	v := values.ByNumber(number)
	if v == nil {
		return strconv.Itoa(int(number)) // of a newer broker
	}
	prefix := strings.TrimSuffix(string(values.Get(0).Name()), "UNSPECIFIED")
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix)), "_", "-")
}

// maxText bounds the text an agent or a caller may add to a report.
const maxText = 1024

// Text makes a sender's text fit for a line of a log or of a comment.
func Text(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return ' '
		}
		return c
	}, text[:min(len(text), utf8.UTFMax*maxText)])
	return text[:min(len(text), maxText)]
}

func inverse[K, V comparable](m map[K]V) map[V]K {
	out := make(map[V]K, len(m))
	for k, v := range m {
		out[v] = k
	}
	return out
}

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
		Profile: a.Kernel.Profile, Version: a.Kernel.Version, Nodes: a.Nodes, Phase: jobPhase(a),
		Reason: a.Reason, HandedTo: a.HandedTo,
		Before: proofsToProto(a.Had(), a.Before), During: proofsToProto(a.Had(), a.During), After: proofsToProto(a.Had(), a.After),
	}
	for _, e := range a.Timeline {
		job.Timeline = append(job.Timeline, &api.TimelineEvent{At: TimeToProto(e.At), Node: e.Node, Event: e.Event, Detail: e.Detail})
	}
	return job
}

// jobPhase also says what became of a job that did not get its kernel.
func jobPhase(a *kb.Allocation) api.AllocationPhase {
	switch {
	case a.Phase != kb.PhaseFailed || !a.Requeued:
		return allocationPhases[a.Phase]
	case a.Hold:
		return api.AllocationPhase_ALLOCATION_PHASE_HELD
	}
	return api.AllocationPhase_ALLOCATION_PHASE_REQUEUED
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

// KernelToProto converts one kernel, for the services and for a node's desired state.
func KernelToProto(k kb.Kernel) *api.KernelSpec {
	return &api.KernelSpec{
		Profile: k.Profile, Version: k.Version,
		ImageDigest: k.ImageDigest, ImageSize: k.ImageSize,
		InitrdDigest: k.InitrdDigest, InitrdSize: k.InitrdSize, ModulesDigest: k.ModulesDigest, ModulesSize: k.ModulesSize,
		Arguments: k.Arguments, BuildId: k.BuildID, Release: k.Release,
		Architecture: k.Architecture, Drivers: k.Drivers, MinMemoryMib: k.MinMemoryMiB,
		SystemCores: k.SystemCores,
	}
}

// KernelFromProto is the inverse of KernelToProto.
func KernelFromProto(k *api.KernelSpec) kb.Kernel {
	return kb.Kernel{
		Profile: k.GetProfile(), Version: k.GetVersion(),
		ImageDigest: k.GetImageDigest(), ImageSize: k.GetImageSize(),
		InitrdDigest: k.GetInitrdDigest(), InitrdSize: k.GetInitrdSize(), ModulesDigest: k.GetModulesDigest(), ModulesSize: k.GetModulesSize(),
		Arguments: k.GetArguments(), BuildID: k.GetBuildId(), Release: k.GetRelease(),
		Architecture: k.GetArchitecture(), Drivers: k.GetDrivers(), MinMemoryMiB: k.GetMinMemoryMib(),
		SystemCores: k.GetSystemCores(),
	}
}

// ProfileToProto converts a profile with all versions and their lifecycle.
func ProfileToProto(p kb.Profile) *api.Profile {
	out := &api.Profile{
		Name: p.Name, Application: p.Application, Description: p.Description,
		DefaultVersion: p.DefaultVersion, Reuse: reuseToProto[p.Reuse],
		BootAttempts: p.BootAttempts, BootTimeoutMs: uint64(max(0, p.BootTimeout.Milliseconds())),
		Fallback: fallbackToProto[p.Fallback],
	}
	for _, v := range p.Versions {
		out.Versions = append(out.Versions, versionToProto(v))
	}
	for _, c := range p.History {
		out.History = append(out.History, &api.Change{At: TimeToProto(c.At), Who: c.Who, What: c.What, Version: c.Version, Reason: c.Reason})
	}
	return out
}

// ProfileFromProto is the inverse of ProfileToProto, to the millisecond, except the
// history, which only the broker writes.
func ProfileFromProto(p *api.Profile) kb.Profile {
	out := kb.Profile{
		Name: p.GetName(), Application: p.GetApplication(), Description: p.GetDescription(),
		DefaultVersion: p.GetDefaultVersion(), Reuse: reuseFromProto[p.GetReuse()],
		BootAttempts: p.GetBootAttempts(), BootTimeout: milliseconds(p.GetBootTimeoutMs()),
		Fallback: fallbackFromProto[p.GetFallback()],
	}
	for _, v := range p.GetVersions() {
		out.Versions = append(out.Versions, versionFromProto(v))
	}
	return out
}

func versionToProto(v kb.ProfileVersion) *api.ProfileVersion {
	out := &api.ProfileVersion{
		Kernel: KernelToProto(v.Kernel), BootFailures: v.BootFailures,
		RegisteredAt: TimeToProto(v.RegisteredAt), Envelope: v.Envelope, Measured: MeasurementToProto(v.Measured), NoBtf: v.NoBTF,
	}
	if v.Quarantine != nil {
		out.Quarantine = &api.Quarantine{Reason: v.Quarantine.Reason, Since: TimeToProto(v.Quarantine.Since)}
	}
	if v.Retired != nil {
		out.Retired = &api.Retirement{Reason: v.Retired.Reason, Since: TimeToProto(v.Retired.Since)}
	}
	for _, d := range v.Documents {
		out.Documents = append(out.Documents, &api.Document{Name: d.Name, Digest: d.Digest, Size: d.Size})
	}
	return out
}

func versionFromProto(v *api.ProfileVersion) kb.ProfileVersion {
	out := kb.ProfileVersion{
		Kernel: KernelFromProto(v.GetKernel()), BootFailures: v.GetBootFailures(),
		RegisteredAt: TimeFromProto(v.GetRegisteredAt()), Envelope: v.GetEnvelope(), Measured: MeasurementFromProto(v.GetMeasured()), NoBTF: v.GetNoBtf(),
	}
	if q := v.GetQuarantine(); q != nil {
		out.Quarantine = &kb.Quarantine{Reason: q.GetReason(), Since: TimeFromProto(q.GetSince())}
	}
	if r := v.GetRetired(); r != nil {
		out.Retired = &kb.Retirement{Reason: r.GetReason(), Since: TimeFromProto(r.GetSince())}
	}
	for _, d := range v.GetDocuments() {
		out.Documents = append(out.Documents, kb.Document{Name: d.GetName(), Digest: d.GetDigest(), Size: d.GetSize()})
	}
	return out
}

func milliseconds(n uint64) time.Duration {
	if n > math.MaxInt64/uint64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}

var (
	reuseToProto = map[kb.ReusePolicy]api.ReusePolicy{
		kb.ReuseSameProfile: api.ReusePolicy_REUSE_POLICY_SAME_PROFILE,
		kb.ReuseNever:       api.ReusePolicy_REUSE_POLICY_NEVER,
	}
	reuseFromProto = inverse(reuseToProto)

	fallbackToProto = map[kb.FallbackPolicy]api.FallbackPolicy{
		kb.FallbackHold:    api.FallbackPolicy_FALLBACK_POLICY_HOLD,
		kb.FallbackRequeue: api.FallbackPolicy_FALLBACK_POLICY_REQUEUE,
	}
	fallbackFromProto = inverse(fallbackToProto)
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
	out := &api.DesiredRuns{}
	for _, r := range runs {
		out.Runs = append(out.Runs, &api.DesiredRun{RunId: r.Run, JobId: r.Job.Job, RestartCount: r.Job.Restart,
			Uid: r.UID, Cgroup: r.Cgroup, Collectors: r.Collectors, Ended: r.Ended, Watched: r.Watched})
	}
	return &api.ConnectResponse{Message: &api.ConnectResponse_Runs{Runs: out}}
}

// DesiredRunsFromProto is the inverse of DesiredRunsToProto.
func DesiredRunsFromProto(m *api.DesiredRuns) []kb.DesiredRun {
	var runs []kb.DesiredRun
	for _, r := range m.GetRuns() {
		runs = append(runs, kb.DesiredRun{Run: r.GetRunId(), Job: kb.JobID{Job: r.GetJobId(), Restart: r.GetRestartCount()},
			UID: r.GetUid(), Cgroup: r.GetCgroup(), Collectors: r.GetCollectors(), Ended: r.GetEnded(), Watched: r.GetWatched()})
	}
	return runs
}
