// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// The kernel can time each run of a BPF program, which costs about as much as a small program itself. So it is enabled
// in windows only: from the start, so that a short job is measured too, and then with doubling pauses.
const (
	window     = 100 * time.Millisecond
	firstPause = 400 * time.Millisecond
	mostPause  = 10 * time.Second
)

// Assumed cost of a program run until a window has measured it; most cost less. A window needs a minimum number of runs.
const (
	firstPrice = 300 // nanoseconds
	enoughRuns = 100
)

// meter measures what the collectors cost.
type meter struct {
	// jobNS reads the CPU time that the job used so far.
	jobNS func() uint64
	// enable makes the kernel keep count until it is closed.
	enable func() (io.Closer, error)
	stats  io.Closer
	timer  *time.Timer
	pause  time.Duration
	before map[profiling.Collector]edge
	order  []profiling.Collector
	sums   map[profiling.Collector]profiling.Overhead
	// recent are sums in which each window counts half as much as the one after it.
	recent map[profiling.Collector]profiling.Overhead
	prices map[profiling.Collector]float64
	// held: the collectors are paused, and a window would measure nothing. owed: one was due meanwhile.
	held, owed bool
	// failed is why nothing is measured; nil if it works.
	failed error
}

// edge is one end of a window for one collector: reading takes time, so each has its own.
type edge struct {
	cost  bpf.Cost
	jobNS uint64
	at    time.Time
}

func newMeter(jobNS func() uint64) *meter {
	return &meter{
		jobNS: jobNS, enable: func() (io.Closer, error) { return ebpf.EnableStats(unix.BPF_STATS_RUN_TIME) },
		timer: time.NewTimer(time.Hour), pause: firstPause,
		before: map[profiling.Collector]edge{}, sums: map[profiling.Collector]profiling.Overhead{},
		recent: map[profiling.Collector]profiling.Overhead{},
		prices: map[profiling.Collector]float64{},
	}
}

// open: the kernel keeps count now.
func (m *meter) open() bool { return m.stats != nil }

// due returns the time of the next turn.
func (m *meter) due() <-chan time.Time { return m.timer.C }

// turn opens a window, or closes the one that is open.
func (m *meter) turn(sessions []working) {
	if m.held {
		m.owed = true
		return
	}
	if m.stats != nil {
		m.close(sessions)
		m.timer.Reset(m.pause)
		m.pause = min(2*m.pause, mostPause)
		return
	}
	if len(sessions) == 0 {
		return
	}
	stats, err := m.enable()
	if err != nil {
		// Kernels before 5.8.
		m.failed = fmt.Errorf("the kernel does not time BPF programs: %w", err)
		return
	}
	m.stats = stats
	for _, w := range sessions {
		m.before[w.name] = m.edge(w)
	}
	m.timer.Reset(window)
}

func (m *meter) edge(w working) edge {
	cost, err := w.session.Spent()
	if err != nil {
		m.failed = err
	}
	return edge{cost, m.jobNS(), time.Now()}
}

// close ends the window, if one is open.
func (m *meter) close(sessions []working) {
	if m.stats == nil {
		return
	}
	for _, w := range sessions {
		sum, known := m.sums[w.name]
		if !known {
			m.order = append(m.order, w.name)
			sum.Collector = w.name
		}
		before, after := m.before[w.name], m.edge(w)
		m.learn(w.name, before.cost, after.cost)
		jobNS, spentNS := after.jobNS-before.jobNS, after.cost.NS-before.cost.NS
		sum.WindowNS += uint64(after.at.Sub(before.at))
		sum.JobNS += jobNS
		sum.Events += after.cost.Runs - before.cost.Runs
		sum.SpentNS += spentNS
		m.sums[w.name] = sum
		recent := m.recent[w.name]
		m.recent[w.name] = profiling.Overhead{JobNS: recent.JobNS/2 + jobNS, SpentNS: recent.SpentNS/2 + spentNS}
	}
	if err := m.stats.Close(); err != nil {
		m.failed = err
	}
	m.stats = nil
}

// hold ends a window early: the collectors pause.
func (m *meter) hold(sessions []working) {
	m.held = true
	if m.stats != nil {
		m.close(sessions)
		m.timer.Reset(m.pause)
	}
}

// resume continues after a pause.
func (m *meter) resume(sessions []working) {
	m.held = false
	if m.owed {
		m.owed = false
		m.turn(sessions)
	}
}

func (m *meter) learn(name profiling.Collector, before, after bpf.Cost) {
	if runs := after.Runs - before.Runs; runs >= enoughRuns {
		m.prices[name] = float64(after.NS-before.NS) / float64(runs)
	}
}

// price of one run of a collector's programs in nanoseconds, by the window that
// is open or the last one.
func (m *meter) price(w working) float64 {
	if m.stats != nil {
		if cost, err := w.session.Spent(); err == nil {
			m.learn(w.name, m.before[w.name].cost, cost)
		}
	}
	if price, known := m.prices[w.name]; known {
		return price
	}
	return firstPrice
}

// share of the job's CPU time that a collector took in recent windows.
func (m *meter) share(name profiling.Collector) float64 { return m.recent[name].Share() }

func (m *meter) overhead(node string) []profiling.Overhead {
	var all []profiling.Overhead
	for _, name := range m.order {
		sum := m.sums[name]
		sum.Node = node
		all = append(all, sum)
	}
	return all
}
