// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/trace"
)

// openTraces sends a trace of each switch to the collector that broker.yaml names; without one nobody is told.
func openTraces(ctx context.Context, c config, log *slog.Logger) (switched func(*kb.Allocation), closed func(), err error) {
	if c.Tracing.OTLP == "" {
		return nil, func() {}, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces not sent", "to", c.Tracing.OTLP, "error", err) }))
	spans, err := trace.New(ctx, c.Tracing.OTLP, c.Cluster, version)
	if err != nil {
		return nil, nil, usageError{err}
	}
	return spans.Switch, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := spans.Close(ctx); err != nil {
			log.Warn("last traces not sent", "to", c.Tracing.OTLP, "error", err)
		}
	}, nil
}
