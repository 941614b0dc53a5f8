// SPDX-License-Identifier: Apache-2.0

// Package trace makes OpenTelemetry spans of a job's switch when that ends: from the timeline that the job's record has
// anyway, so no other code knows of spans.
package trace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// mostNodes of a switch have spans, those that took longest: a job may have thousands.
const mostNodes = 16

// Exporter sends spans to a collector.
type Exporter struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// New returns an exporter to a collector's address by OTLP over gRPC, such as http://127.0.0.1:4317. It does not wait for the
// collector: spans that find none are dropped.
func New(ctx context.Context, address, cluster, version string) (*Exporter, error) {
	out, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(address))
	if err != nil {
		return nil, fmt.Errorf("traces to %q: %w", address, err)
	}
	of := resource.NewSchemaless(attribute.String("service.name", "kernel-broker"), attribute.String("service.version", version), attribute.String("slurm.cluster", cluster))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(out), sdk.WithResource(of))
	return &Exporter{provider, provider.Tracer("kernel-broker")}, nil
}

// Close sends what waits.
func (e *Exporter) Close(ctx context.Context) error { return e.provider.Shutdown(ctx) }

// Switch tells of a job whose switch has ended: from the job's start in Slurm until it had its kernel, or was not to get it.
func (e *Exporter) Switch(a *kb.Allocation) {
	if len(a.Timeline) == 0 {
		return
	}
	begin, end := a.Timeline[0].At, a.Timeline[len(a.Timeline)-1].At
	ctx, whole := e.tracer.Start(context.Background(), "switch", trace.WithTimestamp(begin), trace.WithNewRoot(), trace.WithAttributes(
		attribute.String("slurm.job", a.ID.String()), attribute.String("kernel", a.Kernel.Ref().String()), attribute.Int("nodes", len(a.Nodes)),
		attribute.String("result", string(a.Phase))))
	if a.Phase == kb.PhaseFailed {
		whole.SetStatus(codes.Error, a.Reason)
	}
	e.steps(ctx, begin, of(a.Timeline, ""))
	for _, name := range slowest(a.Timeline) {
		events := of(a.Timeline, name)
		in, node := e.tracer.Start(ctx, "node", trace.WithTimestamp(begin), trace.WithAttributes(attribute.String("node", name)))
		e.steps(in, begin, events)
		node.End(trace.WithTimestamp(events[len(events)-1].At))
	}
	whole.End(trace.WithTimestamp(end))
}

// steps has a span for each event: what led to it, since the one before.
func (e *Exporter) steps(ctx context.Context, begin time.Time, events []kb.Event) {
	for _, event := range events {
		_, span := e.tracer.Start(ctx, event.Event, trace.WithTimestamp(begin), trace.WithAttributes(attribute.String("detail", event.Detail)))
		span.End(trace.WithTimestamp(event.At))
		begin = event.At
	}
}

func of(timeline []kb.Event, node string) (events []kb.Event) {
	for _, e := range timeline {
		if e.Node == node {
			events = append(events, e)
		}
	}
	return events
}

// slowest are the nodes whose last event is latest.
func slowest(timeline []kb.Event) []string {
	last := map[string]time.Time{}
	for _, e := range timeline {
		if e.Node != "" {
			last[e.Node] = e.At
		}
	}
	names := slices.SortedFunc(maps.Keys(last), func(a, b string) int {
		return cmp.Or(last[b].Compare(last[a]), strings.Compare(a, b))
	})
	return names[:min(len(names), mostNodes)]
}
