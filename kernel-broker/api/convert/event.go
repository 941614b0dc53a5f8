// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"google.golang.org/protobuf/types/known/durationpb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

var eventSubjects = map[kb.EventSubject]api.EventSubject{
	kb.SubjectNode:    api.EventSubject_EVENT_SUBJECT_NODE,
	kb.SubjectJob:     api.EventSubject_EVENT_SUBJECT_JOB,
	kb.SubjectProfile: api.EventSubject_EVENT_SUBJECT_PROFILE,
	kb.SubjectKernel:  api.EventSubject_EVENT_SUBJECT_KERNEL,
	kb.SubjectRule:    api.EventSubject_EVENT_SUBJECT_RULE,
}

var eventSubjectsBack = inverse(eventSubjects)

// EventToProto converts an event.
func EventToProto(e kb.ClusterEvent) *api.Event {
	out := &api.Event{
		Number: e.Number, At: TimeToProto(e.At), Subject: eventSubjects[e.Subject], Event: e.Event, Node: e.Node,
		JobId: e.Job.Job, RestartCount: e.Job.Restart, User: e.User, Profile: e.Kernel.Profile, Version: e.Kernel.Version, Rule: e.Rule,
		From: e.From, To: e.To, Who: e.Who, Why: e.Why,
	}
	if e.Took > 0 {
		out.Took = durationpb.New(e.Took)
	}
	return out
}

// EventFilterFromProto converts a filter.
func EventFilterFromProto(f *api.EventFilter) kb.EventFilter {
	return kb.EventFilter{Node: f.GetNode(), Job: f.GetJobId(), Profile: f.GetProfile(), Subject: eventSubjectsBack[f.GetSubject()], Since: TimeFromProto(f.GetSince())}
}
