// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"slices"
	"time"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// span is one way of a job's nodes, to the kernel or back to stock, with a lane for each node.
type span struct {
	Title string
	Took  time.Duration
	Lanes []lane
	// More is how many nodes have no lane, those that were done first.
	More   int
	Ticks  []tick
	Phases []phaseKind
	// Slowest is the longest phase of the node that was done last.
	Slowest *phase
	Last    string
}

// lane is one node's way.
type lane struct {
	Node   string
	Took   time.Duration
	Phases []phase
}

// phase is what a node spent a time with. Left and Width are percentages of the span.
type phase struct {
	phaseKind
	Detail      string
	From, Took  time.Duration
	Left, Width float64
	Slowest     bool
}

// phaseKind names a phase and gives it a colour; a failure ends it if Bad.
type phaseKind struct {
	Name   string
	Colour int
	Bad    bool
}

type tick struct {
	Left float64
	Text string
}

// phaseKinds name what a node did until an event. An event of another name is the phase's name.
var phaseKinds = map[string]phaseKind{
	"armed":       {"arm in Slurm", 0, false},
	"fetching":    {"reach the agent", 0, false},
	"loaded":      {"fetch and load", 1, false},
	"kexec":       {"stop slurmd", 2, false},
	"booted":      {"boot", 3, false},
	"attested":    {"prove", 4, false},
	"registered":  {"register in Slurm", 5, false},
	"returning":   {"wait", 0, false},
	"stock":       {"settle on stock", 5, false},
	"reset":       {"wait for the boot", 6, true},
	"reboot":      {"until the reboot", 6, false},
	"load failed": {"fetch and load, failed", 7, true},
	"boot failed": {"boot, failed", 7, true},
	"unproven":    {"prove, failed", 7, true},
	"failed":      {"fail", 7, true},
}

// mostLanes of a span are drawn, those that were done last.
const mostLanes = 100

// step is an event of a job's timeline.
type step struct {
	At            time.Time
	Node          string
	Event, Detail string
}

// spansOf a job: its way to the kernel, and its way back once it has begun. What happened in between is the rest.
func spansOf(j *api.Job) (spans []span, between []step) {
	var there, back []step
	begin, ready, returning := time.Time{}, time.Time{}, time.Time{}
	for _, e := range j.GetTimeline() {
		s := step{e.GetAt().AsTime(), e.GetNode(), e.GetEvent(), e.GetDetail()}
		if begin.IsZero() {
			begin = s.At
		}
		switch {
		case !returning.IsZero():
			back = append(back, s)
		case s.Node == "" && s.Event == "returning":
			returning = s.At
		case !ready.IsZero():
			between = append(between, s)
		default:
			there = append(there, s)
			if s.Node == "" && s.Event == "ready" {
				ready = s.At
			}
		}
	}
	if len(there) > 0 {
		spans = append(spans, spanOf("To the kernel", begin, there, j.GetNodes()))
	}
	if !returning.IsZero() {
		spans = append(spans, spanOf("Back to stock", returning, back, j.GetNodes()))
	}
	return spans, between
}

// spanOf divides the time of each node at its events: what comes before an event is the phase that it ends.
func spanOf(title string, begin time.Time, steps []step, nodes []string) span {
	s := span{Title: title}
	lanes, last := map[string]*lane{}, map[string]time.Time{}
	for _, e := range steps {
		s.Took = max(s.Took, e.At.Sub(begin))
		if e.Node == "" {
			continue
		}
		if lanes[e.Node] == nil {
			lanes[e.Node], last[e.Node] = &lane{Node: e.Node}, begin
		}
		l := lanes[e.Node]
		kind, known := phaseKinds[e.Event]
		if !known {
			kind = phaseKind{Name: "until " + e.Event}
		}
		l.Phases = append(l.Phases, phase{phaseKind: kind, Detail: e.Detail, From: last[e.Node].Sub(begin), Took: max(0, e.At.Sub(last[e.Node]))})
		l.Took, last[e.Node] = e.At.Sub(begin), e.At
	}
	for _, l := range lanes {
		s.Lanes = append(s.Lanes, *l)
	}
	for _, name := range nodes {
		if lanes[name] == nil {
			s.Lanes = append(s.Lanes, lane{Node: name})
		}
	}
	s.choose()
	s.place()
	return s
}

// choose the lanes to draw, and mark the slowest phase of the node that was done last.
func (s *span) choose() {
	slices.SortFunc(s.Lanes, func(a, b lane) int { return cmp.Or(cmp.Compare(b.Took, a.Took), hostlist.Natural(a.Node, b.Node)) })
	if len(s.Lanes) > 0 && len(s.Lanes[0].Phases) > 0 {
		slow := slices.MaxFunc(s.Lanes[0].Phases, func(a, b phase) int { return cmp.Compare(a.Took, b.Took) })
		for i, p := range s.Lanes[0].Phases {
			if p.From == slow.From && p.Took == slow.Took && s.Slowest == nil {
				s.Lanes[0].Phases[i].Slowest = true
				s.Slowest, s.Last = &s.Lanes[0].Phases[i], s.Lanes[0].Node
			}
		}
	}
	if s.More = max(0, len(s.Lanes)-mostLanes); s.More > 0 {
		s.Lanes = s.Lanes[:mostLanes]
		return // the slowest first
	}
	slices.SortFunc(s.Lanes, func(a, b lane) int { return hostlist.Natural(a.Node, b.Node) })
}

// place sets where each phase is drawn, and the axis.
func (s *span) place() {
	if s.Took <= 0 {
		return
	}
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(s.Took) }
	seen := map[phaseKind]bool{}
	for _, l := range s.Lanes {
		for i := range l.Phases {
			p := &l.Phases[i]
			p.Left, p.Width = share(p.From), share(p.Took)
			if p.Slowest {
				slow := *p
				s.Slowest = &slow
			}
			if !seen[p.phaseKind] {
				seen[p.phaseKind] = true
				s.Phases = append(s.Phases, p.phaseKind)
			}
		}
	}
	apart := tickDistance(s.Took)
	s.Ticks = append(s.Ticks, tick{0, "0"})
	for at := apart; at <= s.Took; at += apart {
		s.Ticks = append(s.Ticks, tick{share(at), took(at)})
	}
}

// mostTicks fit below a span on a phone.
const mostTicks = 6

// tickDistance is a round time that divides the span into a few parts.
func tickDistance(whole time.Duration) time.Duration {
	for unit := time.Millisecond; ; unit *= 10 {
		for _, times := range []time.Duration{1, 2, 5} {
			if whole/(unit*times) < mostTicks {
				return unit * times
			}
		}
	}
}
