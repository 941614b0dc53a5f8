// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
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

func (r Report) calls() report.Section {
	s := report.Section{ID: "calls", Title: "System calls"}
	calls := r.shown.Syscalls
	if calls == nil {
		return s
	}
	s.Lead = r.overhead(profiling.CollectSyscalls)
	s.Components = append(s.Components, r.looked(profiling.CollectSyscalls)...)
	s.Components = append(s.Components, r.leftOut()...)
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	split := report.Stack{Caption: r.estimates(profiling.CollectSyscalls, "Time of the calls that took most, by its causes"), Axis: "time in calls", Tick: report.Seconds, Segments: report.Named(names...)}
	table := report.Table{Caption: r.estimates(profiling.CollectSyscalls, "Calls"), Columns: []report.Column{{Title: "Call"}, {Title: "Calls", Numeric: true}, {Title: "Failed", Numeric: true},
		{Title: "Time", Numeric: true}, {Title: "Each", Numeric: true}, {Title: "Half below", Numeric: true}, {Title: "99 % below", Numeric: true}, {Title: "Longest", Numeric: true}}}
	causes := report.Table{Caption: r.estimates(profiling.CollectSyscalls, "Causes of each call's time"), Columns: []report.Column{{Title: "Call"}}}
	for _, c := range profiling.Causes() {
		causes.Columns = append(causes.Columns, report.Column{Title: string(c), Numeric: true})
	}
	var charts []report.Component
	for i, c := range calls.Calls {
		if i == mostCalls {
			table.Note = fmt.Sprintf("The first %d of %d calls.", mostCalls, len(calls.Calls))
			break
		}
		each := report.Missing()
		if c.Count > 0 {
			each = secondsOf(c.NS / c.Count)
		}
		table.Rows = append(table.Rows, report.Row{report.Code(c.Name), countOf(c.Count), countOf(c.Failed), secondsOf(c.NS), each,
			secondsOf(c.Below(0.5)), secondsOf(c.Below(0.99)), secondsOf(c.MostNS)})
		row := report.Row{report.Code(c.Name)}
		for _, cause := range profiling.Causes() {
			row = append(row, secondsOf(c.Split[cause].NS))
		}
		causes.Rows = append(causes.Rows, row)
		if i < mostCharts {
			split.Rows = append(split.Rows, report.StackRow{Label: c.Name, Sizes: sizes(c)})
			charts = append(charts, report.Histogram{Caption: r.estimates(profiling.CollectSyscalls, "How long calls of "+c.Name+" took"), Axis: "calls by their time",
				Series: report.Named(c.Name), Bound: report.Seconds, Buckets: report.Log2([][]uint64{c.Times}, nanosecond)})
		}
	}
	if len(table.Rows) == 0 {
		s.Components = append(s.Components, report.Paragraph("The job made no system call while it was looked at."))
		return s
	}
	s.Components = append(s.Components, split, table)
	s.Components = append(s.Components, charts...)
	s.Components = append(s.Components, report.Folded{Title: "All causes", Components: []report.Component{causes}}, report.Folded{Title: "By process", Components: []report.Component{r.processes()}})
	if mixed := r.slurms.Mixed; len(mixed) > 0 {
		s.Components = append(s.Components, report.Paragraph("Slurm's calls and the job's are together in how long single ones took of: "+strings.Join(mixed, ", ")+". Slurm's time was taken off their waits."))
	}
	if calls.LostAway > 0 {
		s.Components = append(s.Components, report.Notice{Mood: report.Bad, Title: "Not whole:", Text: fmt.Sprintf("of %d calls nothing is known, there was no memory for them", calls.LostAway)})
	}
	return s
}

// leftOut is the one line on what is Slurm's.
func (r Report) leftOut() []report.Component {
	if r.slurms.None() {
		return nil
	}
	return []report.Component{report.Paragraph(fmt.Sprintf("Left out as Slurm's own: %s. kernelctl run report %d --slurm shows them.", r.slurms, r.Run.ID))}
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

func (r Report) processes() report.Table {
	table := report.Table{Caption: r.estimates(profiling.CollectSyscalls, "Calls of each process"), Columns: []report.Column{{Title: "Program"}, {Title: "Node"}, {Title: "Process", Numeric: true},
		{Title: "Call"}, {Title: "Calls", Numeric: true}, {Title: "Time", Numeric: true}}}
	for i, p := range r.shown.Syscalls.Processes {
		if i == mostProcesses {
			table.Note = fmt.Sprintf("The first %d of %d.", mostProcesses, len(r.shown.Syscalls.Processes))
			break
		}
		table.Rows = append(table.Rows, report.Row{report.Code(p.Program), report.Text(p.Node), report.Figure(float64(p.PID), fmt.Sprint(p.PID)),
			report.Code(p.Name), countOf(p.Count), secondsOf(p.NS)})
	}
	return table
}

func (r Report) files() report.Section {
	s := report.Section{ID: "files", Title: "Input and output"}
	io := r.shown.IO
	if io == nil {
		return s
	}
	s.Lead = r.overhead(profiling.CollectIO)
	s.Components = append(s.Components, r.looked(profiling.CollectIO)...)
	if r.Result.Syscalls == nil {
		s.Components = append(s.Components, r.leftOut()...)
	}
	columns := []report.Column{{Title: "Files"}, {Title: "Used for"}, {Title: "Number", Numeric: true}, {Title: "Reads", Numeric: true}, {Title: "Bytes read", Numeric: true},
		{Title: "Writes", Numeric: true}, {Title: "Bytes written", Numeric: true}, {Title: "Bytes each", Numeric: true}, {Title: "In order", Numeric: true}, {Title: "Syncs", Numeric: true}, {Title: "Advice"}}
	patterns := report.Table{Caption: r.estimates(profiling.CollectIO, "Patterns: files that are used alike"), Columns: columns}
	for _, p := range io.Patterns {
		both := p.Read.Plus(p.Write)
		advice := ""
		for i, a := range p.Advice {
			if i > 0 {
				advice += "; "
			}
			advice += a.What
		}
		patterns.Rows = append(patterns.Rows, report.Row{report.Code(p.Shape), report.Text(p.Behaviour), countOf(p.Files), countOf(p.Read.Calls), countOf(p.Read.Bytes),
			countOf(p.Write.Calls), countOf(p.Write.Bytes), meanBytes(both), percentOf(both.Sequential, both.Moved()), countOf(p.Syncs), report.Text(advice)})
	}
	totals := report.Table{Caption: r.estimates(profiling.CollectIO, "All of a kind"), Columns: []report.Column{{Title: "Kind"}, {Title: "Reads", Numeric: true}, {Title: "Bytes read", Numeric: true},
		{Title: "Writes", Numeric: true}, {Title: "Bytes written", Numeric: true}, {Title: "Failed", Numeric: true}, {Title: "Cut short", Numeric: true}}}
	for _, t := range io.Totals {
		totals.Rows = append(totals.Rows, report.Row{report.Text(t.Kind), countOf(t.Read.Calls), countOf(t.Read.Bytes), countOf(t.Write.Calls), countOf(t.Write.Bytes),
			countOf(t.Read.Failed + t.Write.Failed), countOf(t.Read.Cut + t.Write.Cut)})
	}
	regular := io.Total(profiling.RegularFiles)
	s.Components = append(s.Components, patterns, totals, report.Histogram{Caption: r.estimates(profiling.CollectIO, "Bytes that one call moved"), Axis: "calls by bytes", Series: report.Named("reads", "writes"),
		Bound: func(v float64) string { return report.Bytes(int64(v)) }, Buckets: report.Log2([][]uint64{regular.Read.Sizes, regular.Write.Sizes}, 1)},
		report.Folded{Title: "Single files", Components: []report.Component{r.singleFiles()}})
	return s
}

func meanBytes(t profiling.Traffic) report.Cell {
	if t.Moved() == 0 {
		return report.Missing()
	}
	return countOf(t.Bytes / t.Moved())
}

func (r Report) singleFiles() report.Table {
	io := r.shown.IO
	table := report.Table{Caption: r.estimates(profiling.CollectIO, "Files"), Columns: []report.Column{{Title: "File"}, {Title: "Node"}, {Title: "Size", Numeric: true}, {Title: "Opened", Numeric: true},
		{Title: "Reads", Numeric: true}, {Title: "Bytes read", Numeric: true}, {Title: "Writes", Numeric: true}, {Title: "Bytes written", Numeric: true},
		{Title: "Syncs", Numeric: true}, {Title: "File system"}}}
	for _, f := range io.Files[:min(len(io.Files), mostFiles)] {
		table.Rows = append(table.Rows, report.Row{report.Code(f.Path), report.Text(f.Node), bytesOf(f.Size), countOf(f.Opens), countOf(f.Read.Calls), bytesOf(f.Read.Bytes),
			countOf(f.Write.Calls), bytesOf(f.Write.Bytes), countOf(f.Syncs), report.Text(f.FileSystem)})
	}
	if left := uint64(len(io.Files)-len(table.Rows)) + io.FilesLeftOut; left > 0 {
		table.Note = fmt.Sprintf("%d more are in the patterns and totals.", left)
	}
	return table
}

func (r Report) noise() report.Section {
	s := report.Section{ID: "noise", Title: "Noise"}
	n := r.Result.Noise
	if n == nil {
		return s
	}
	s.Lead = r.overhead(profiling.CollectNoise)
	table := report.Table{Caption: "What was left of each CPU to the job", Columns: []report.Column{{Title: "Node"}, {Title: "CPU", Numeric: true},
		{Title: "Wanted", Numeric: true}, {Title: "Taken by others", Numeric: true}, {Title: "Left", Numeric: true}}}
	sources := report.Table{Caption: "Who took it", Columns: []report.Column{{Title: "Source"}, {Title: "Kind"}, {Title: "Node"}, {Title: "CPU", Numeric: true},
		{Title: "Times", Numeric: true}, {Title: "Time", Numeric: true}, {Title: "Longest", Numeric: true}}}
	kinds := map[profiling.NoiseKind]profiling.Histogram{}
	for _, c := range n.CPUs {
		cpu := report.Figure(float64(c.CPU), fmt.Sprint(c.CPU))
		table.Rows = append(table.Rows, report.Row{report.Text(c.Node), cpu, secondsOf(c.WantedNS), secondsOf(c.LostNS), report.Figure(c.Left(), fmt.Sprintf("%.3f %%", 100*c.Left()))})
		for _, source := range c.Sources {
			sources.Rows = append(sources.Rows, report.Row{report.Code(source.Name), report.Text(string(source.Kind)), report.Text(c.Node), cpu,
				countOf(source.Count), secondsOf(source.NS), secondsOf(source.MostNS)})
			kinds[source.Kind] = kinds[source.Kind].Plus(source.Times)
		}
	}
	slices.SortStableFunc(sources.Rows, func(a, b report.Row) int { return cmp.Compare(*b[5].Value, *a[5].Value) })
	var names []string
	var counts [][]uint64
	for _, kind := range []profiling.NoiseKind{profiling.NoiseIRQ, profiling.NoiseSoftIRQ, profiling.NoiseNMI, profiling.NoiseThread} {
		if h := kinds[kind]; h.Count() > 0 {
			names, counts = append(names, string(kind)), append(counts, h)
		}
	}
	if cpu, worst, ok := n.Worst(); ok {
		s.Components = append(s.Components, report.Facts{{Name: "Worst single event", Text: fmt.Sprintf("%s: %s %s on node %s, CPU %d, at %s",
			report.Seconds(float64(worst.MostNS)*nanosecond), worst.Kind, worst.Name, cpu.Node, cpu.CPU, worst.At.UTC().Format("15:04:05.000"))},
			{Name: "Left to the job", Text: fmt.Sprintf("%.3f %% of the time that it wanted a CPU", 100*n.Left())}, {Name: "Method", Text: n.Method}})
	}
	s.Components = append(s.Components, table)
	if len(counts) > 0 {
		s.Components = append(s.Components, report.Histogram{Caption: "How long single events took", Axis: "events by their time", Series: report.Named(names...),
			Bound: report.Seconds, Buckets: report.Log2(counts, nanosecond)}, sources)
	}
	return s
}

func (r Report) counters() report.Section {
	s := report.Section{ID: "counters", Title: "Counters for a profile-guided kernel"}
	if r.Result.PGO == nil {
		return s
	}
	table := report.Table{Caption: "Archives", Columns: []report.Column{{Title: "Node"}, {Title: "Build"}, {Title: "Objects", Numeric: true}, {Title: "Size", Numeric: true}}}
	for _, a := range r.Result.PGO.Archives {
		table.Rows = append(table.Rows, report.Row{report.Text(a.Node), report.Code(a.BuildID), countOf(a.Files), bytesOf(a.Bytes)})
	}
	s.Components = append(s.Components, table)
	return s
}
