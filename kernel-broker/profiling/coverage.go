// SPDX-License-Identifier: Apache-2.0

package profiling

import "math"

// Coverage says for how much of a job a collector looked. One that costs the
// job more than the site allows looks away now and then; its counts are
// estimates then, and say so here.
type Coverage struct {
	Node      string    `json:"node"`
	Collector Collector `json:"collector"`
	// Exact: it looked all the time, and what is counted is what happened.
	Exact bool `json:"exact"`
	// BudgetPPM is the share of the job's CPU time that all collectors on the
	// node may take, in millionths; 0 is no bound.
	BudgetPPM uint64 `json:"budget_ppm"`
	// SpanNS is the time from the collector's begin to its end, LookedNS the part
	// in which it looked, in Pauses and one pieces.
	SpanNS   uint64 `json:"span_ns"`
	LookedNS uint64 `json:"looked_ns"`
	Pauses   uint64 `json:"pauses"`
	// JobNS is the CPU time that the job used in the span, LookedJobNS the part
	// in which it was looked at.
	JobNS       uint64 `json:"job_ns"`
	LookedJobNS uint64 `json:"looked_job_ns"`
	// Events that were seen, and how many there were by the estimate: a pause
	// had as many, for the CPU time that the job had to itself, as the moments
	// before it. What is scaled is multiplied by the second over the first.
	Events    uint64 `json:"events"`
	Estimated uint64 `json:"estimated"`
	// CostNS is what the collector cost over the span, with the kernel's way to
	// its programs.
	CostNS uint64 `json:"cost_ns"`
	// Scaled figures are estimates for the whole span, AsSeen ones are as they
	// were seen: there was at least so much. Both are empty if it is exact.
	Scaled []string `json:"scaled"`
	AsSeen []string `json:"as_seen"`
}

// Share of the time in which the collector looked.
func (c Coverage) Share() float64 {
	if c.SpanNS == 0 {
		return 1
	}
	return float64(c.LookedNS) / float64(c.SpanNS)
}

// Factor that counts are scaled by.
func (c Coverage) Factor() float64 {
	if c.Exact || c.Events == 0 {
		return 1
	}
	return max(1, float64(c.Estimated)/float64(c.Events))
}

// Covered is what a collector covered on all nodes together; known is false
// without any word of it.
func (r *Result) Covered(name Collector) (all Coverage, known bool) {
	all = Coverage{Collector: name, Exact: true}
	for _, c := range r.Coverage {
		if c.Collector != name {
			continue
		}
		known = true
		all.Exact = all.Exact && c.Exact
		all.BudgetPPM = max(all.BudgetPPM, c.BudgetPPM)
		all.SpanNS += c.SpanNS
		all.LookedNS += c.LookedNS
		all.Pauses += c.Pauses
		all.JobNS += c.JobNS
		all.LookedJobNS += c.LookedJobNS
		all.Events += c.Events
		all.Estimated += c.Estimated
		all.CostNS += c.CostNS
		if !c.Exact {
			all.Scaled, all.AsSeen = c.Scaled, c.AsSeen
		}
	}
	return all, known
}

// Estimated returns what each collector whose figures are estimates covered, on
// all nodes together.
func (r *Result) Estimated() []Coverage {
	var all []Coverage
	for _, name := range Collectors() {
		if c, _ := r.Covered(name); !c.Exact {
			all = append(all, c)
		}
	}
	return all
}

// Cover adds the coverage of one collector, and scales what the collector found
// if it did not look all the time.
func (r *Result) Cover(c Coverage) {
	if !c.Exact {
		switch c.Collector {
		case CollectIO:
			c.Scaled = []string{"calls", "bytes", "opens", "seeks", "syncs", "mappings"}
			c.AsSeen = []string{"files and their number", "sizes of files", "least and most bytes of a call"}
			if r.IO != nil {
				r.IO = r.IO.scaled(c.Factor())
			}
		case CollectSyscalls:
			c.Scaled = []string{"calls", "failed calls", "time and its parts"}
			c.AsSeen = []string{"processes", "the longest call"}
			if r.Syscalls != nil {
				r.Syscalls = r.Syscalls.scaled(c.Factor())
			}
		case CollectCallgraph, CollectNoise, CollectPGO:
			// They never look away.
		}
	}
	r.Coverage = append(r.Coverage, c)
}

func scaled(n uint64, factor float64) uint64 { return uint64(math.Round(float64(n) * factor)) }

func (h Histogram) scaled(factor float64) Histogram {
	all := make(Histogram, len(h))
	for i, n := range h {
		all[i] = scaled(n, factor)
	}
	return all.Trimmed()
}

func (p Part) scaled(factor float64) Part {
	return Part{Count: scaled(p.Count, factor), NS: scaled(p.NS, factor)}
}

// scaled keeps what holds of all results: the parts add up to the whole, and
// the histogram to the calls.
func (c Syscall) scaled(factor float64) Syscall {
	whole := c.Times.Count() == c.Count
	c.Failed, c.Times = scaled(c.Failed, factor), c.Times.scaled(factor)
	c.Count, c.NS = scaled(c.Count, factor), scaled(c.NS, factor)
	if whole {
		c.Count = c.Times.Count()
	}
	if len(c.Split) == 0 {
		return c
	}
	split := map[Cause]Part{}
	c.NS = 0
	for cause, part := range c.Split {
		split[cause] = part.scaled(factor)
		c.NS += split[cause].NS
	}
	c.Split = split
	return c
}

func (s *Syscalls) scaled(factor float64) *Syscalls {
	all := &Syscalls{NotListed: s.NotListed.scaled(factor), LostAway: scaled(s.LostAway, factor)}
	for _, c := range s.Calls {
		all.Calls = append(all.Calls, c.scaled(factor))
	}
	for _, p := range s.Processes {
		p.Count, p.NS = scaled(p.Count, factor), scaled(p.NS, factor)
		all.Processes = append(all.Processes, p)
	}
	all.Sort()
	return all
}

func (t Traffic) scaled(factor float64) Traffic {
	for _, n := range []*uint64{&t.Calls, &t.Bytes, &t.Failed, &t.Nothing, &t.Cut, &t.Small, &t.Sequential} {
		*n = scaled(*n, factor)
	}
	t.Sizes = t.Sizes.scaled(factor)
	return t
}

func (t Total) scaled(factor float64) Total {
	return Total{Kind: t.Kind, Read: t.Read.scaled(factor), Write: t.Write.scaled(factor)}
}

func (io *IO) scaled(factor float64) *IO {
	all := &IO{FilesLeftOut: io.FilesLeftOut, Overflow: io.Overflow.scaled(factor)}
	for _, t := range io.Totals {
		all.Totals = append(all.Totals, t.scaled(factor))
	}
	for _, f := range io.Files {
		f.Read, f.Write = f.Read.scaled(factor), f.Write.scaled(factor)
		for _, n := range []*uint64{&f.Opens, &f.Syncs, &f.Seeks, &f.IdleSeeks, &f.Maps} {
			*n = scaled(*n, factor)
		}
		all.Files = append(all.Files, f)
	}
	for _, p := range io.Patterns {
		p.Read, p.Write = p.Read.scaled(factor), p.Write.scaled(factor)
		for _, n := range []*uint64{&p.Bytes, &p.Calls, &p.Opens, &p.Syncs, &p.Seeks, &p.IdleSeeks, &p.Maps} {
			*n = scaled(*n, factor)
		}
		// It rests on the sums, and its words have them: see patterns.Advise.
		p.Advice = nil
		all.Patterns = append(all.Patterns, p)
	}
	all.sort()
	return all
}
