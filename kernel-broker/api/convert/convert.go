// SPDX-License-Identifier: Apache-2.0

// Package convert maps the API to the domain and back. Conversions are total:
// they check nothing, and what protobuf has and the domain has not (an
// unspecified enum) becomes a value that the domain's Validate refuses. Reports
// of agents are the exception: what an agent may not report is an error.
package convert

import (
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
func Word(e protoreflect.Enum) string {
	values := e.Descriptor().Values()
	v := values.ByNumber(e.Number())
	if v == nil {
		return strconv.Itoa(int(e.Number())) // of a newer broker
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
