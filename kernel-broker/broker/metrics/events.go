// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const namespace = "kernelbroker"

// Buckets in seconds: a kexec of a small guest takes one, the firmware of a large machine half an hour.
var (
	bootBuckets = []float64{0.5, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800}
	workBuckets = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
)

// steps names what ends with a node's event.
var steps = map[string]string{kb.NodeLoaded: "load", kb.NodeKexec: "stop", kb.NodeProven: "boot"}

// events are what is counted as it happens.
type events struct {
	switches, returned *prometheus.HistogramVec
	phases             *prometheus.HistogramVec
	boots              *prometheus.CounterVec
	loads              *prometheus.CounterVec
	resets             *prometheus.CounterVec
	away               *prometheus.CounterVec
	quarantines        *prometheus.CounterVec
	out                *prometheus.CounterVec
	all                *prometheus.CounterVec

	mu sync.Mutex
	// begun is when the boot of each node was requested, and for which profile's kernel.
	begun map[string]boot
}

type boot struct {
	profile string
	at      time.Time
}

func newEvents(r prometheus.Registerer) *events {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: bootBuckets}, labels)
		r.MustRegister(h)
		return h
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	return &events{
		switches:    histogram("switch_duration_seconds", "From a job's request until its nodes are ready, or it failed, or it left before.", "profile", "result"),
		returned:    histogram("return_duration_seconds", "From a job's end until its nodes are back on stock, kept, or with another job.", "profile"),
		phases:      histogram("boot_phase_duration_seconds", "Phases of nodes' boots into a profile's kernel: load, stop (until the kexec), boot (until the proof). Profile stock is the return.", "profile", "phase"),
		boots:       counter("node_boots_total", "Boots of nodes by what became of them.", "profile", "result"),
		loads:       counter("node_load_failures_total", "Kernels that nodes could not load, by whose fault it is: node or kernel.", "profile", "fault"),
		resets:      counter("node_resets_total", "Nodes that the site's reset command was run for.", "profile"),
		away:        counter("node_switching_seconds_total", "Time that nodes spent on their way from one kernel to another, which no job can use.", "profile"),
		quarantines: counter("kernel_quarantines_total", "Kernels that were quarantined.", "profile"),
		out:         counter("node_out_of_service_total", "Nodes that were drained or set down, by whose word.", "author"),
		all:         counter("events_total", "Events by subject and kind.", "subject", "event"),
		begun:       map[string]boot{},
	}
}

// expect has a profile's counters at zero: the rate of one that begins at one misses its first.
func (m *events) expect(profile string) {
	for _, result := range []string{string(kb.PhaseReady), string(kb.PhaseFailed)} {
		m.switches.WithLabelValues(profile, result)
	}
	for _, result := range []string{"proven", "failed"} {
		m.boots.WithLabelValues(profile, result)
	}
	for _, fault := range []kb.FailureKind{kb.FailureNode, kb.FailureKernel} {
		m.loads.WithLabelValues(profile, string(fault))
	}
	m.quarantines.WithLabelValues(profile)
	m.away.WithLabelValues(profile)
}

// observe counts what happened.
func (m *events) observe(list []kb.ClusterEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range list {
		m.all.WithLabelValues(string(e.Subject), e.Event).Inc()
		switch e.Subject {
		case kb.SubjectJob:
			m.job(e)
		case kb.SubjectNode:
			m.node(e)
		case kb.SubjectKernel:
			if e.Event == kb.ChangeQuarantined {
				m.quarantines.WithLabelValues(e.Kernel.Profile).Inc()
			}
		}
	}
}

func (m *events) job(e kb.ClusterEvent) {
	switch {
	case e.Event == string(kb.PhaseReady) || e.Event == string(kb.PhaseFailed):
		m.switches.WithLabelValues(e.Kernel.Profile, e.Event).Observe(e.Took.Seconds())
	case e.Event == string(kb.PhaseReturning) && e.From != string(kb.PhaseReady):
		m.switches.WithLabelValues(e.Kernel.Profile, "left").Observe(e.Took.Seconds())
	case e.Event == string(kb.PhaseDone) && e.Took > 0:
		m.returned.WithLabelValues(e.Kernel.Profile).Observe(e.Took.Seconds())
	}
}

func (m *events) node(e kb.ClusterEvent) {
	if phase := steps[e.Event]; phase != "" && e.Took > 0 {
		m.phases.WithLabelValues(e.Kernel.Profile, phase).Observe(e.Took.Seconds())
	}
	switch e.Event {
	case kb.NodeBootRequested:
		m.end(e)
		m.begun[e.Node] = boot{e.Kernel.Profile, e.At}
	case kb.NodeProven:
		if m.end(e) {
			m.boots.WithLabelValues(e.Kernel.Profile, "proven").Inc()
		}
	case kb.NodeBootDropped:
		m.end(e)
	case kb.NodeBootFailed, kb.NodeFailed:
		m.failed(e)
	case kb.NodeReset:
		m.resets.WithLabelValues(e.Kernel.Profile).Inc()
	case kb.NodeOutOfService:
		m.out.WithLabelValues(authorOf(e.Who)).Inc()
	}
}

// failed counts a boot that failed once, though both the try and the node may fail with it.
func (m *events) failed(e kb.ClusterEvent) {
	if !m.end(e) {
		return
	}
	if e.From == string(kb.ProgressLoading) || e.From == string(kb.ProgressLoaded) {
		m.loads.WithLabelValues(e.Kernel.Profile, faultOf(e)).Inc()
	}
	m.boots.WithLabelValues(e.Kernel.Profile, "failed").Inc()
}

func faultOf(e kb.ClusterEvent) string {
	if e.To == string(kb.FailureNode) {
		return e.To
	}
	return string(kb.FailureKernel)
}

// end adds the time of a boot that ends, and reports whether its begin was seen.
func (m *events) end(e kb.ClusterEvent) bool {
	b, seen := m.begun[e.Node]
	delete(m.begun, e.Node)
	if took := e.At.Sub(b.at); seen && took > 0 {
		m.away.WithLabelValues(b.profile).Add(took.Seconds())
	}
	return seen
}

// authorOf is one of a few words: names of people are no label.
func authorOf(who string) string {
	if who == "kernel-broker" || who == "slurmctld" {
		return who
	}
	return "administrator"
}
