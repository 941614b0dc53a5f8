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

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
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
	clean := make([]rune, 0, min(len(text), maxText))
	for _, c := range text {
		if c < ' ' || c > '~' {
			c = ' '
		}
		if clean = append(clean, c); len(clean) == maxText {
			break
		}
	}
	return string(clean)
}

func inverse[K, V comparable](m map[K]V) map[V]K {
	out := make(map[V]K, len(m))
	for k, v := range m {
		out[v] = k
	}
	return out
}
