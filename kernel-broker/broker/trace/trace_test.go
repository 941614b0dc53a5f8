// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// receiver keeps the spans that it gets.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*otlp.Span
}

func (r *receiver) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range in.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// A switch is one trace: the job's steps and, below it, those of the nodes that were last, each as long as the timeline says.
func TestSwitch(t *testing.T) {
	r := &receiver{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := grpc.NewServer()
	collector.RegisterTraceServiceServer(served, r)
	go func() { _ = served.Serve(l) }()
	t.Cleanup(served.Stop)
	e, err := New(t.Context(), "http://"+l.Addr().String(), "hpc", "1.0")
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	a := &kb.Allocation{ID: kb.JobID{Job: 7}, Kernel: kb.Kernel{Profile: "mitgcm", Version: 3}, Phase: kb.PhaseFailed, Reason: "n2: no driver", Nodes: []string{"n1", "n2"}}
	for _, e := range []struct {
		at          int
		node, event string
	}{{0, "", "accepted"}, {1, "", "switching"}, {2, "n1", "kexec"}, {3, "n2", "kexec"}, {9, "n1", "attested"}, {12, "", "failed"}} {
		a.Note(noon.Add(time.Duration(e.at)*time.Second), e.node, e.event, "")
	}
	e.Switch(a)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	names, got := map[string]string{}, []string(nil)
	for _, s := range r.spans {
		names[string(s.GetSpanId())] = s.GetName()
	}
	for _, s := range r.spans {
		second := func(nano uint64) int64 { return int64(nano)/1e9 - noon.Unix() }
		got = append(got, fmt.Sprintf("%s>%s %d-%d", names[string(s.GetParentSpanId())], s.GetName(), second(s.GetStartTimeUnixNano()), second(s.GetEndTimeUnixNano())))
		if string(s.GetTraceId()) != string(r.spans[0].GetTraceId()) {
			t.Errorf("%s is in another trace", s.GetName())
		}
		if s.GetName() == "switch" && (s.GetStatus().GetMessage() != a.Reason || s.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR) {
			t.Errorf("status %v", s.GetStatus())
		}
	}
	slices.Sort(got)
	want := []string{">switch 0-12", "node>attested 2-9", "node>kexec 0-2", "node>kexec 0-3", "switch>accepted 0-0", "switch>failed 1-12",
		"switch>node 0-3", "switch>node 0-9", "switch>switching 0-1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
