// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/page"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// How many rows a table shows before it is folded or cut.
const (
	mostCalls     = 100
	mostProcesses = 100
	mostFiles     = 1000
	mostFunctions = 100
	// mostCharts of single calls.
	mostCharts = 6
)

// groups of causes, so that a chart can tell them apart.
var groups = []struct {
	name   string
	causes []profiling.Cause
}{
	{"own work", []profiling.Cause{profiling.CauseCall}},
	{"page faults", []profiling.Cause{profiling.CauseFault, profiling.CauseFaultWait}},
	{"interrupts", []profiling.Cause{profiling.CauseIRQ, profiling.CauseSoftIRQ}},
	{"packets", []profiling.Cause{profiling.CausePacketJob, profiling.CausePacketOther}},
	{"waited for a packet", []profiling.Cause{profiling.CauseWaitPacket}},
	{"waited for a device or timer", []profiling.Cause{profiling.CauseWaitDevice}},
	{"waited for a task", []profiling.Cause{profiling.CauseWaitJob, profiling.CauseWaitOther, profiling.CauseWaitUnknown}},
	{"no CPU", []profiling.Cause{profiling.CauseReadyJob, profiling.CauseReadyOther, profiling.CauseReadyIdle,
		profiling.CausePreemptedJob, profiling.CausePreemptedOther}},
}

func (r Report) calls() page.Section {
	s := page.Section{ID: "calls", Title: "System calls"}
	calls := r.shown.Syscalls
	if calls == nil {
		return s
	}
	s.Lead = r.overhead(profiling.CollectSyscalls)
	s.Parts = append(s.Parts, r.looked(profiling.CollectSyscalls)...)
	s.Parts = append(s.Parts, r.leftOut()...)
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	split := page.Stack{Caption: r.estimates(profiling.CollectSyscalls, "Time of the calls that took most, by its causes"), Axis: "time in calls", Tick: page.Seconds, Segments: page.Named(names...)}
	table := page.Table{Caption: r.estimates(profiling.CollectSyscalls, "Calls"), Columns: []page.Column{{Title: "Call"}, {Title: "Calls", Numeric: true}, {Title: "Failed", Numeric: true},
		{Title: "Time", Numeric: true}, {Title: "Each", Numeric: true}, {Title: "Half below", Numeric: true}, {Title: "99 % below", Numeric: true}, {Title: "Longest", Numeric: true}}}
	causes := page.Table{Caption: r.estimates(profiling.CollectSyscalls, "Causes of each call's time"), Columns: []page.Column{{Title: "Call"}}}
	for _, c := range profiling.Causes() {
		causes.Columns = append(causes.Columns, page.Column{Title: string(c), Numeric: true})
	}
	var charts []page.Part
	for i, c := range calls.Calls {
		if i == mostCalls {
			table.Note = fmt.Sprintf("The first %d of %d calls.", mostCalls, len(calls.Calls))
			break
		}
		each := page.Missing()
		if c.Count > 0 {
			each = secondsOf(c.NS / c.Count)
		}
		table.Rows = append(table.Rows, page.Row{page.Code(c.Name), countOf(c.Count), countOf(c.Failed), secondsOf(c.NS), each,
			secondsOf(c.Below(0.5)), secondsOf(c.Below(0.99)), secondsOf(c.MostNS)})
		row := page.Row{page.Code(c.Name)}
		for _, cause := range profiling.Causes() {
			row = append(row, secondsOf(c.Split[cause].NS))
		}
		causes.Rows = append(causes.Rows, row)
		if i < mostCharts {
			split.Rows = append(split.Rows, page.StackRow{Label: c.Name, Sizes: sizes(c)})
			charts = append(charts, page.Histogram{Caption: r.estimates(profiling.CollectSyscalls, "How long calls of "+c.Name+" took"), Axis: "calls by their time",
				Series: page.Named(c.Name), Bound: page.Seconds, Buckets: page.Log2([][]uint64{c.Times}, nanosecond)})
		}
	}
	if len(table.Rows) == 0 {
		s.Parts = append(s.Parts, page.Paragraph("The job made no system call while it was looked at."))
		return s
	}
	s.Parts = append(s.Parts, split, table)
	s.Parts = append(s.Parts, charts...)
	s.Parts = append(s.Parts, page.Folded{Title: "All causes", Parts: []page.Part{causes}}, page.Folded{Title: "By process", Parts: []page.Part{r.processes()}})
	if mixed := r.slurms.Mixed; len(mixed) > 0 {
		s.Parts = append(s.Parts, page.Paragraph("Slurm's calls and the job's are together in how long single ones took of: "+strings.Join(mixed, ", ")+". Slurm's time was taken off their waits."))
	}
	if calls.LostAway > 0 {
		s.Parts = append(s.Parts, page.Notice{Mood: page.Bad, Title: "Not whole:", Text: fmt.Sprintf("of %d calls nothing is known, there was no memory for them", calls.LostAway)})
	}
	return s
}

// leftOut is the one line on what is Slurm's.
func (r Report) leftOut() []page.Part {
	if r.slurms.None() {
		return nil
	}
	return []page.Part{page.Paragraph(fmt.Sprintf("Left out as Slurm's own: %s. kernelctl run report %d --slurm shows them.", r.slurms, r.Run.ID))}
}

func sizes(c profiling.Syscall) []float64 {
	out := make([]float64, len(groups))
	for i, g := range groups {
		for _, cause := range g.causes {
			out[i] += float64(c.Split[cause].NS) * nanosecond
		}
	}
	return out
}

func (r Report) processes() page.Table {
	table := page.Table{Caption: r.estimates(profiling.CollectSyscalls, "Calls of each process"), Columns: []page.Column{{Title: "Program"}, {Title: "Node"}, {Title: "Process", Numeric: true},
		{Title: "Call"}, {Title: "Calls", Numeric: true}, {Title: "Time", Numeric: true}}}
	for i, p := range r.shown.Syscalls.Processes {
		if i == mostProcesses {
			table.Note = fmt.Sprintf("The first %d of %d.", mostProcesses, len(r.shown.Syscalls.Processes))
			break
		}
		table.Rows = append(table.Rows, page.Row{page.Code(p.Program), page.Text(p.Node), page.Figure(float64(p.PID), fmt.Sprint(p.PID)),
			page.Code(p.Name), countOf(p.Count), secondsOf(p.NS)})
	}
	return table
}

func (r Report) files() page.Section {
	s := page.Section{ID: "files", Title: "Input and output"}
	io := r.shown.IO
	if io == nil {
		return s
	}
	s.Lead = r.overhead(profiling.CollectIO)
	s.Parts = append(s.Parts, r.looked(profiling.CollectIO)...)
	if r.Result.Syscalls == nil {
		s.Parts = append(s.Parts, r.leftOut()...)
	}
	columns := []page.Column{{Title: "Files"}, {Title: "Used for"}, {Title: "Number", Numeric: true}, {Title: "Reads", Numeric: true}, {Title: "Bytes read", Numeric: true},
		{Title: "Writes", Numeric: true}, {Title: "Bytes written", Numeric: true}, {Title: "Bytes each", Numeric: true}, {Title: "In order", Numeric: true}, {Title: "Syncs", Numeric: true}, {Title: "Advice"}}
	patterns := page.Table{Caption: r.estimates(profiling.CollectIO, "Patterns: files that are used alike"), Columns: columns}
	for _, p := range io.Patterns {
		both := p.Read.Plus(p.Write)
		advice := ""
		for i, a := range p.Advice {
			if i > 0 {
				advice += "; "
			}
			advice += a.What
		}
		patterns.Rows = append(patterns.Rows, page.Row{page.Code(p.Shape), page.Text(p.Behaviour), countOf(p.Files), countOf(p.Read.Calls), countOf(p.Read.Bytes),
			countOf(p.Write.Calls), countOf(p.Write.Bytes), meanBytes(both), percentOf(both.Sequential, both.Moved()), countOf(p.Syncs), page.Text(advice)})
	}
	totals := page.Table{Caption: r.estimates(profiling.CollectIO, "All of a kind"), Columns: []page.Column{{Title: "Kind"}, {Title: "Reads", Numeric: true}, {Title: "Bytes read", Numeric: true},
		{Title: "Writes", Numeric: true}, {Title: "Bytes written", Numeric: true}, {Title: "Failed", Numeric: true}, {Title: "Cut short", Numeric: true}}}
	for _, t := range io.Totals {
		totals.Rows = append(totals.Rows, page.Row{page.Text(t.Kind), countOf(t.Read.Calls), countOf(t.Read.Bytes), countOf(t.Write.Calls), countOf(t.Write.Bytes),
			countOf(t.Read.Failed + t.Write.Failed), countOf(t.Read.Cut + t.Write.Cut)})
	}
	regular := io.Total(profiling.RegularFiles)
	s.Parts = append(s.Parts, patterns, totals, page.Histogram{Caption: r.estimates(profiling.CollectIO, "Bytes that one call moved"), Axis: "calls by bytes", Series: page.Named("reads", "writes"),
		Bound: func(v float64) string { return page.Bytes(int64(v)) }, Buckets: page.Log2([][]uint64{regular.Read.Sizes, regular.Write.Sizes}, 1)},
		page.Folded{Title: "Single files", Parts: []page.Part{r.singleFiles()}})
	return s
}

func meanBytes(t profiling.Traffic) page.Cell {
	if t.Moved() == 0 {
		return page.Missing()
	}
	return countOf(t.Bytes / t.Moved())
}

func (r Report) singleFiles() page.Table {
	io := r.shown.IO
	table := page.Table{Caption: r.estimates(profiling.CollectIO, "Files"), Columns: []page.Column{{Title: "File"}, {Title: "Node"}, {Title: "Size", Numeric: true}, {Title: "Opened", Numeric: true},
		{Title: "Reads", Numeric: true}, {Title: "Bytes read", Numeric: true}, {Title: "Writes", Numeric: true}, {Title: "Bytes written", Numeric: true},
		{Title: "Syncs", Numeric: true}, {Title: "File system"}}}
	for _, f := range io.Files[:min(len(io.Files), mostFiles)] {
		table.Rows = append(table.Rows, page.Row{page.Code(f.Path), page.Text(f.Node), bytesOf(f.Size), countOf(f.Opens), countOf(f.Read.Calls), bytesOf(f.Read.Bytes),
			countOf(f.Write.Calls), bytesOf(f.Write.Bytes), countOf(f.Syncs), page.Text(f.FileSystem)})
	}
	if left := uint64(len(io.Files)-len(table.Rows)) + io.FilesLeftOut; left > 0 {
		table.Note = fmt.Sprintf("%d more are in the patterns and totals.", left)
	}
	return table
}

func (r Report) noise() page.Section {
	s := page.Section{ID: "noise", Title: "Noise"}
	n := r.Result.Noise
	if n == nil {
		return s
	}
	s.Lead = r.overhead(profiling.CollectNoise)
	table := page.Table{Caption: "What was left of each CPU to the job", Columns: []page.Column{{Title: "Node"}, {Title: "CPU", Numeric: true},
		{Title: "Wanted", Numeric: true}, {Title: "Taken by others", Numeric: true}, {Title: "Left", Numeric: true}}}
	sources := page.Table{Caption: "Who took it", Columns: []page.Column{{Title: "Source"}, {Title: "Kind"}, {Title: "Node"}, {Title: "CPU", Numeric: true},
		{Title: "Times", Numeric: true}, {Title: "Time", Numeric: true}, {Title: "Longest", Numeric: true}}}
	kinds := map[profiling.NoiseKind]profiling.Histogram{}
	for _, c := range n.CPUs {
		cpu := page.Figure(float64(c.CPU), fmt.Sprint(c.CPU))
		table.Rows = append(table.Rows, page.Row{page.Text(c.Node), cpu, secondsOf(c.WantedNS), secondsOf(c.LostNS), page.Figure(c.Left(), fmt.Sprintf("%.3f %%", 100*c.Left()))})
		for _, source := range c.Sources {
			sources.Rows = append(sources.Rows, page.Row{page.Code(source.Name), page.Text(string(source.Kind)), page.Text(c.Node), cpu,
				countOf(source.Count), secondsOf(source.NS), secondsOf(source.MostNS)})
			kinds[source.Kind] = kinds[source.Kind].Plus(source.Times)
		}
	}
	slices.SortStableFunc(sources.Rows, func(a, b page.Row) int { return cmp.Compare(*b[5].Value, *a[5].Value) })
	var names []string
	var counts [][]uint64
	for _, kind := range []profiling.NoiseKind{profiling.NoiseIRQ, profiling.NoiseSoftIRQ, profiling.NoiseNMI, profiling.NoiseThread} {
		if h := kinds[kind]; h.Count() > 0 {
			names, counts = append(names, string(kind)), append(counts, h)
		}
	}
	if cpu, worst, ok := n.Worst(); ok {
		s.Parts = append(s.Parts, page.Facts{{Name: "Worst single event", Text: fmt.Sprintf("%s: %s %s on node %s, CPU %d, at %s",
			page.Seconds(float64(worst.MostNS)*nanosecond), worst.Kind, worst.Name, cpu.Node, cpu.CPU, worst.At.UTC().Format("15:04:05.000"))},
			{Name: "Left to the job", Text: fmt.Sprintf("%.3f %% of the time that it wanted a CPU", 100*n.Left())}, {Name: "Method", Text: n.Method}})
	}
	s.Parts = append(s.Parts, table)
	if len(counts) > 0 {
		s.Parts = append(s.Parts, page.Histogram{Caption: "How long single events took", Axis: "events by their time", Series: page.Named(names...),
			Bound: page.Seconds, Buckets: page.Log2(counts, nanosecond)}, sources)
	}
	return s
}

func (r Report) counters() page.Section {
	s := page.Section{ID: "counters", Title: "Counters for a profile-guided kernel"}
	if r.Result.PGO == nil {
		return s
	}
	table := page.Table{Caption: "Archives", Columns: []page.Column{{Title: "Node"}, {Title: "Build"}, {Title: "Objects", Numeric: true}, {Title: "Size", Numeric: true}}}
	for _, a := range r.Result.PGO.Archives {
		table.Rows = append(table.Rows, page.Row{page.Text(a.Node), page.Code(a.BuildID), countOf(a.Files), bytesOf(a.Bytes)})
	}
	s.Parts = append(s.Parts, table)
	return s
}
