// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Metrics are the figures of one broker. Safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	events   *events
	pass     *prometheus.HistogramVec
	poll     *prometheus.HistogramVec
	// Calls are the figures of gRPC, whose interceptors a server takes.
	Calls *grpcprom.ServerMetrics
}

// New returns figures that are all zero.
func New(version string) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info", Help: "Always 1: the broker's version.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	work := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: workBuckets}, []string{"result"})
	}
	m := &Metrics{registry: registry, events: newEvents(registry),
		pass:  work("pass_duration_seconds", "Passes: deciding on what changed, and committing it."),
		poll:  work("slurm_poll_duration_seconds", "Looks at slurmctld."),
		Calls: grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(grpcprom.WithHistogramBuckets(workBuckets)))}
	registry.MustRegister(build, m.pass, m.poll, m.Calls)
	return m
}

// Events counts events; package history calls it.
func (m *Metrics) Events(list []kb.ClusterEvent) { m.events.observe(list) }

// Passed counts a pass.
func (m *Metrics) Passed(took time.Duration, err error) {
	m.pass.WithLabelValues(resultOf(err)).Observe(took.Seconds())
}

// Polled counts a look at slurmctld.
func (m *Metrics) Polled(took time.Duration, err error) {
	m.poll.WithLabelValues(resultOf(err)).Observe(took.Seconds())
}

func resultOf(err error) string {
	if err != nil {
		return "failure"
	}
	return "success"
}

// Watch has the state asked at each scrape. Call it once.
func (m *Metrics) Watch(s State) { m.registry.MustRegister(&state{State: s, events: m.events}) }

// Handler answers scrapes. Two at a time: each asks the store.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError})
}

// Limits of the HTTP server, which anybody may reach that the address lets.
const (
	headerLimit = 5 * time.Second
	answerLimit = 30 * time.Second
	stopLimit   = time.Second
	mostHeader  = 8 << 10
)

// Serve answers on an address until ctx ends.
func (m *Metrics) Serve(ctx context.Context, listener net.Listener, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler(log))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerLimit, ReadTimeout: headerLimit, WriteTimeout: answerLimit, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: mostHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if server.Shutdown(limited) != nil {
			_ = server.Close() // a scrape may be cut off
		}
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
