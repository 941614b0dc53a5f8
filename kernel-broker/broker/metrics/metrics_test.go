// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/metrics"
)

var (
	noon   = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	mitgcm = kb.Ref{Profile: "mitgcm", Version: 2}
	stock  = kb.Ref{Profile: "stock", Version: 1}
)

func scrape(t testing.TB, m *metrics.Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func wants(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "kernelbroker_") && !strings.Contains(line, "_bucket") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}

// night is a switch that succeeds on n1, and fails on n2, and a return that a node cannot load.
func night() []kb.ClusterEvent {
	node := func(second int, name, event string, kernel kb.Ref, set func(*kb.ClusterEvent)) kb.ClusterEvent {
		e := kb.ClusterEvent{At: noon.Add(time.Duration(second) * time.Second), Subject: kb.SubjectNode, Node: name, Event: event, Kernel: kernel}
		if set != nil {
			set(&e)
		}
		return e
	}
	took := func(d time.Duration) func(*kb.ClusterEvent) { return func(e *kb.ClusterEvent) { e.Took = d } }
	from := func(stage, fault string) func(*kb.ClusterEvent) {
		return func(e *kb.ClusterEvent) { e.From, e.To, e.Why = stage, fault, "what only a person reads" }
	}
	job := func(event string, of kb.Phase, d time.Duration) kb.ClusterEvent {
		return kb.ClusterEvent{At: noon, Subject: kb.SubjectJob, Job: kb.JobID{Job: 4711}, User: "alice", Event: event, From: string(of), Kernel: mitgcm, Took: d}
	}
	return []kb.ClusterEvent{
		job("accepted", "", 0),
		node(0, "n1", kb.NodeBootRequested, mitgcm, nil), node(0, "n2", kb.NodeBootRequested, mitgcm, nil),
		node(3, "n1", kb.NodeLoaded, mitgcm, took(3*time.Second)), node(4, "n1", kb.NodeKexec, mitgcm, took(time.Second)),
		node(9, "n2", kb.NodeBootFailed, mitgcm, from("booting", "")), node(9, "n2", kb.NodeFailed, mitgcm, from("booting", "kernel")),
		node(12, "n1", kb.NodeProven, mitgcm, took(8*time.Second)),
		job("ready", kb.PhaseSwitching, 14*time.Second), job("failed", kb.PhaseSwitching, 20*time.Second),
		job("returning", kb.PhaseReady, 0), job("returning", kb.PhaseSwitching, 5*time.Second), job("done", kb.PhaseReturning, 30*time.Second),
		node(60, "n1", kb.NodeBootRequested, stock, nil), node(61, "n1", kb.NodeBootFailed, stock, from("loading", "node")),
		node(62, "n3", kb.NodeProven, stock, nil), // it came by itself
		node(63, "n3", kb.NodeOutOfService, kb.Ref{}, func(e *kb.ClusterEvent) { e.Who = "mallory" }),
		node(64, "n3", kb.NodeReset, stock, nil),
		{At: noon, Subject: kb.SubjectKernel, Event: kb.ChangeQuarantined, Kernel: mitgcm},
	}
}

func TestEventsAreCounted(t *testing.T) {
	m := metrics.New("1.2.3")
	m.Events(night())
	text := scrape(t, m)
	wants(t, text,
		`kernelbroker_build_info{version="1.2.3"} 1`,
		`kernelbroker_switch_duration_seconds_sum{profile="mitgcm",result="ready"} 14`,
		`kernelbroker_switch_duration_seconds_count{profile="mitgcm",result="failed"} 1`,
		`kernelbroker_switch_duration_seconds_sum{profile="mitgcm",result="left"} 5`,
		`kernelbroker_return_duration_seconds_sum{profile="mitgcm"} 30`,
		`kernelbroker_boot_phase_duration_seconds_sum{phase="load",profile="mitgcm"} 3`,
		`kernelbroker_boot_phase_duration_seconds_sum{phase="stop",profile="mitgcm"} 1`,
		`kernelbroker_boot_phase_duration_seconds_sum{phase="boot",profile="mitgcm"} 8`,
		`kernelbroker_node_boots_total{profile="mitgcm",result="proven"} 1`,
		`kernelbroker_node_boots_total{profile="mitgcm",result="failed"} 1`,
		`kernelbroker_node_boots_total{profile="stock",result="failed"} 1`,
		`kernelbroker_node_load_failures_total{fault="node",profile="stock"} 1`,
		`kernelbroker_node_switching_seconds_total{profile="mitgcm"} 21`,
		`kernelbroker_node_switching_seconds_total{profile="stock"} 1`,
		`kernelbroker_kernel_quarantines_total{profile="mitgcm"} 1`, `kernelbroker_node_resets_total{profile="stock"} 1`,
		`kernelbroker_node_out_of_service_total{author="administrator"} 1`,
		`kernelbroker_events_total{event="boot-failed",subject="node"} 2`,
	)
	for _, secret := range []string{"4711", "alice", "mallory", "what only a person reads"} {
		if strings.Contains(text, secret) {
			t.Errorf("the figures have %q", secret)
		}
	}
}

func someState(nodes int) metrics.State {
	t := kb.Tally{Jobs: map[kb.Phase]int{kb.PhaseReady: 2}, Turns: 3, LongestTurn: time.Minute, Connected: nodes - 1, SlurmSeen: noon,
		Ledger: []*kb.LedgerRow{{Hardware: kb.Hardware{Board: "B"}, Way: kb.WaySwitch, Tries: 5, Successes: 3}, {Hardware: kb.Hardware{Board: "B", Firmware: "2"}, Way: kb.WaySwitch, Tries: 1, Successes: 1}}}
	for i := range nodes {
		n := kb.NodeTally{Name: fmt.Sprint("n", i+1), Running: stock, Release: "6.1", State: kb.ProgressSteady, Connected: i > 0, Armed: i == 1}
		if i == 2 {
			n.Running, n.State = mitgcm, kb.ProgressFailed
		}
		t.Nodes = append(t.Nodes, n)
	}
	return metrics.State{
		Tally: func() kb.Tally { return t }, QuotaBytes: 1000,
		Profiles: func(context.Context) ([]kb.Profile, error) {
			return []kb.Profile{{Name: "mitgcm", Versions: []kb.ProfileVersion{
				{Kernel: kb.Kernel{Profile: "mitgcm", Version: 1}, Retired: &kb.Retirement{}}, {Kernel: kb.Kernel{Profile: "mitgcm", Version: 2}, Quarantine: &kb.Quarantine{}}}}}, nil
		},
		StoreBytes:   func(context.Context) (int64, int64, error) { return 0, 0, errors.New("away") },
		Events:       func() (uint64, uint64, int64) { return 11, 31, 4096 },
		Certificates: func(context.Context) (map[string]time.Time, error) { return map[string]time.Time{"broker": noon}, nil },
	}
}

func TestStateIsAskedAtAScrape(t *testing.T) {
	m := metrics.New("1.2.3")
	m.Watch(someState(4))
	m.Passed(20*time.Millisecond, nil)
	m.Polled(time.Second, errors.New("away"))
	scrape(t, m) // the counters of a profile are there from the second on
	wants(t, scrape(t, m),
		`kernelbroker_nodes{profile="stock",state="steady"} 3`, `kernelbroker_nodes{profile="mitgcm",state="failed"} 1`,
		`kernelbroker_node_info{kernel="mitgcm@2",node="n3",release="6.1"} 1`, `kernelbroker_node_not_steady{node="n3",state="failed"} 1`,
		`kernelbroker_node_armed{node="n2"} 1`, `kernelbroker_node_agent_away{node="n1"} 1`, `kernelbroker_agents_connected 3`,
		`kernelbroker_jobs{phase="ready"} 2`, `kernelbroker_jobs{phase="switching"} 0`, `kernelbroker_jobs_waiting_for_turn 3`, `kernelbroker_longest_wait_for_turn_seconds 60`,
		`kernelbroker_hardware_boots_total{board="B",result="success",way="switch"} 4`, `kernelbroker_hardware_boots_total{board="B",result="failure",way="switch"} 2`,
		`kernelbroker_kernels{profile="mitgcm",state="quarantined"} 1`, `kernelbroker_kernels{profile="mitgcm",state="available"} 0`, `kernelbroker_kernel_quarantined{kernel="mitgcm@2",profile="mitgcm"} 1`,
		`kernelbroker_store_quota_bytes 1000`, `kernelbroker_node_load_failures_total{fault="node",profile="mitgcm"} 0`, `kernelbroker_switch_duration_seconds_count{profile="mitgcm",result="failed"} 0`,
		`kernelbroker_scrape_success{part="store"} 0`, `kernelbroker_scrape_success{part="catalog"} 1`,
		`kernelbroker_events_kept 20`, `kernelbroker_events_size_bytes 4096`, `kernelbroker_certificate_expiry_timestamp_seconds{certificate="broker"} 1.7958672e+09`,
		`kernelbroker_pass_duration_seconds_count{result="success"} 1`, `kernelbroker_slurm_poll_duration_seconds_count{result="failure"} 1`,
	)
}

func TestNamesFollowTheConventions(t *testing.T) {
	m := metrics.New("1.2.3")
	m.Watch(someState(4))
	m.Events(night())
	m.Passed(0, nil)
	m.Polled(0, nil)
	var own strings.Builder
	for line := range strings.Lines(scrape(t, m)) {
		if strings.Contains(line, "kernelbroker_") {
			own.WriteString(line)
		}
	}
	problems, err := promlint.New(strings.NewReader(own.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %+v", err, problems)
	}
}

func TestServe(t *testing.T) {
	m := metrics.New("1.2.3")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Serve(ctx, listener, slog.New(slog.DiscardHandler)) }()
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} {
		answer, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != want {
			t.Errorf("%s: %s, %v: %.100s", path, answer.Status, err, body)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// A scrape of 4,000 nodes is to stay below 50 ms.
func BenchmarkScrape(b *testing.B) {
	m := metrics.New("1.2.3")
	m.Watch(someState(4000))
	m.Events(night())
	for b.Loop() {
		scrape(b, m)
	}
}
