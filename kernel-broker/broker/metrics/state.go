// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// State is what is asked at each scrape. A nil function is left out.
type State struct {
	Tally func() kb.Tally
	// Profiles of the catalog.
	Profiles func(ctx context.Context) ([]kb.Profile, error)
	// StoreBytes is the size of the store's database, and how much of it is in use.
	StoreBytes func(ctx context.Context) (size, used int64, err error)
	// QuotaBytes is the database's largest size; 0 if the broker does not decide that.
	QuotaBytes int64
	// Events are the numbers of the oldest and the next event, and their bytes in the store.
	Events func() (oldest, next uint64, bytes int64)
	// Certificates are when certificates end, by whose they are: broker, authority, and of all nodes' the first.
	Certificates func(ctx context.Context) (map[string]time.Time, error)
}

// scrapeLimit bounds what a scrape waits for the store.
const scrapeLimit = 5 * time.Second

// state describes itself and is asked at each scrape.
type state struct {
	State
	events *events
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

var (
	nodesDesc      = desc("nodes", "Nodes by the profile whose kernel they are proven to run, and by state; profile is empty if nothing is proven.", "profile", "state")
	nodeInfoDesc   = desc("node_info", "Always 1: what a node runs, for joins by node.", "node", "kernel", "release")
	nodeStateDesc  = desc("node_not_steady", "1 for each node that is not proven to run its desired kernel, by state. A steady node has none.", "node", "state")
	nodeArmedDesc  = desc("node_armed", "1 for each node that Slurm is about to boot for the broker: its drain is no fault.", "node")
	connectedDesc  = desc("agents_connected", "Nodes whose agent is connected.")
	awayDesc       = desc("node_agent_away", "1 for each node whose agent is not connected.", "node")
	jobsDesc       = desc("jobs", "Jobs that asked for a kernel and are not over, by phase.", "phase")
	turnsDesc      = desc("jobs_waiting_for_turn", "Jobs that wait until fewer switches are under way.")
	longestDesc    = desc("longest_wait_for_turn_seconds", "How long the first of these jobs has waited.")
	pollDesc       = desc("slurm_seen_timestamp_seconds", "When slurmctld answered last.")
	triesDesc      = desc("hardware_boots_total", "Boots on record in the hardware ledger, by board, way and result.", "board", "way", "result")
	versionsDesc   = desc("kernels", "Versions of profiles by what jobs may do with them: available, quarantined or retired.", "profile", "state")
	quarantineDesc = desc("kernel_quarantined", "1 for each kernel that is quarantined.", "profile", "kernel")
	storeDesc      = desc("store_size_bytes", "Size of the store's database.")
	usedDesc       = desc("store_used_bytes", "How much of the store's database is in use.")
	quotaDesc      = desc("store_quota_bytes", "The largest size of the store's database, where it is the broker's own.")
	eventsDesc     = desc("events_kept", "Events in the store.")
	eventBytesDesc = desc("events_size_bytes", "What these events take of the store.")
	certDesc       = desc("certificate_expiry_timestamp_seconds", "When a certificate ends: the broker's, the authority's, and of the nodes' the one that ends first.", "certificate")
	askedDesc      = desc("scrape_success", "Whether the figures of a part could be read.", "part")
)

var all = []*prometheus.Desc{nodesDesc, nodeInfoDesc, nodeStateDesc, nodeArmedDesc, connectedDesc, awayDesc, jobsDesc, turnsDesc, longestDesc, pollDesc, triesDesc,
	versionsDesc, quarantineDesc, storeDesc, usedDesc, quotaDesc, eventsDesc, eventBytesDesc, certDesc, askedDesc}

// Describe implements prometheus.Collector.
func (s *state) Describe(out chan<- *prometheus.Desc) {
	for _, d := range all {
		out <- d
	}
}

// gauges sends metrics of one scrape.
type gauges chan<- prometheus.Metric

func (g gauges) set(d *prometheus.Desc, value float64, labels ...string) {
	g <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// Collect implements prometheus.Collector.
func (s *state) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	g := gauges(out)
	if s.Tally != nil {
		s.tally(g, s.Tally())
	}
	if s.Events != nil {
		oldest, next, bytes := s.Events()
		g.set(eventsDesc, float64(next-oldest))
		g.set(eventBytesDesc, float64(bytes))
	}
	if s.QuotaBytes > 0 {
		g.set(quotaDesc, float64(s.QuotaBytes))
	}
	s.ask(ctx, g)
}

// ask has the store answer. What cannot be read is left out, and said.
func (s *state) ask(ctx context.Context, g gauges) {
	part := func(name string, err error) {
		ok := 1.0
		if err != nil {
			ok = 0
		}
		g.set(askedDesc, ok, name)
	}
	if s.Profiles != nil {
		profiles, err := s.Profiles(ctx)
		part("catalog", err)
		for _, p := range profiles {
			s.events.expect(p.Name)
		}
		kernels(g, profiles)
	}
	if s.StoreBytes != nil {
		size, used, err := s.StoreBytes(ctx)
		if part("store", err); err == nil {
			g.set(storeDesc, float64(size))
			g.set(usedDesc, float64(used))
		}
	}
	if s.Certificates != nil {
		ends, err := s.Certificates(ctx)
		part("certificates", err)
		for name, end := range ends {
			g.set(certDesc, float64(end.Unix()), name)
		}
	}
}

func (s *state) tally(g gauges, t kb.Tally) {
	type group struct {
		profile string
		state   kb.Progress
	}
	nodes := map[group]int{}
	for _, n := range t.Nodes {
		nodes[group{n.Running.Profile, n.State}]++
		g.set(nodeInfoDesc, 1, n.Name, n.Running.String(), n.Release)
		if n.State != kb.ProgressSteady {
			g.set(nodeStateDesc, 1, n.Name, string(n.State))
		}
		if n.Armed {
			g.set(nodeArmedDesc, 1, n.Name)
		}
		if !n.Connected {
			g.set(awayDesc, 1, n.Name)
		}
	}
	for at, count := range nodes {
		g.set(nodesDesc, float64(count), at.profile, string(at.state))
	}
	g.set(connectedDesc, float64(t.Connected))
	for _, phase := range []kb.Phase{kb.PhaseAccepted, kb.PhaseSwitching, kb.PhaseReady, kb.PhaseReturning, kb.PhaseFailed} {
		g.set(jobsDesc, float64(t.Jobs[phase]), string(phase))
	}
	g.set(turnsDesc, float64(t.Turns))
	g.set(longestDesc, t.LongestTurn.Seconds())
	if !t.SlurmSeen.IsZero() {
		g.set(pollDesc, float64(t.SlurmSeen.UnixMilli())/1000)
	}
	hardware(g, t.Ledger)
}

// hardware adds the ledger's rows up: firmware and kernels would be too many labels.
func hardware(g gauges, rows []*kb.LedgerRow) {
	type group struct{ board, way, result string }
	tries := map[group]uint64{}
	for _, r := range rows {
		tries[group{r.Hardware.Board, string(r.Way), "success"}] += r.Successes
		tries[group{r.Hardware.Board, string(r.Way), "failure"}] += r.Tries - r.Successes
	}
	for at, count := range tries {
		g <- prometheus.MustNewConstMetric(triesDesc, prometheus.CounterValue, float64(count), at.board, at.way, at.result)
	}
}

func kernels(g gauges, profiles []kb.Profile) {
	for _, p := range profiles {
		states := map[string]int{"available": 0, "quarantined": 0, "retired": 0}
		for _, v := range p.Versions {
			switch {
			case v.Retired != nil:
				states["retired"]++
			case v.Quarantine != nil:
				states["quarantined"]++
				g.set(quarantineDesc, 1, p.Name, kb.Ref{Profile: p.Name, Version: v.Kernel.Version}.String())
			default:
				states["available"]++
			}
		}
		for state, count := range states {
			g.set(versionsDesc, float64(count), p.Name, state)
		}
	}
}
