// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

//go:embed run.tmpl
var runText string

var document = report.NewView(runText, template.FuncMap{
	"missing": report.Missing, "when": when, "capital": capital, "list": list, "advice": adviceOf,
	"count": func(n uint64) string { return report.Count(float64(n)) }, "seconds": secondsOf, "bytes": bytesOf, "percent": percent, "part": percentOf,
	"allowed": func(ppm uint64) report.Cell { return percent(float64(ppm) / 1e6) },
	"factor":  func(f float64) report.Cell { return report.Figure(f, fmt.Sprintf("%.2f", f)) },
	"left":    func(share float64) report.Cell { return report.Figure(share, fmt.Sprintf("%.3f %%", 100*share)) },
	"between": func(begin, end time.Time) report.Cell { return secondsOf(uint64(max(0, end.Sub(begin)))) },
	"times":   func(samples, period uint64) report.Cell { return secondsOf(samples * period) },
	"each":    func(ns, of uint64) report.Cell { return quotient(ns, of, secondsOf) },
	"mean":    func(bytes, of uint64) report.Cell { return quotient(bytes, of, countOf) },
	"cpuTime": cpuTime, "causes": causesOf, "allCauses": profiling.Causes, "sizes": sizesOf, "flame": flameOf, "events": eventsOf, "sources": sourcesOf,
	"mostCharts": func(calls []profiling.Syscall) []profiling.Syscall { return calls[:min(len(calls), 6)] },
	"histogram": func(caption, axis, name string, times profiling.Histogram) report.Chart {
		return histogram(caption, axis, report.Seconds, nanosecond, []string{name}, []profiling.Histogram{times})
	},
})

// view is a report with what run.tmpl asks of it.
type view struct{ Report }

// Shown is the displayed part of the result.
func (v view) Shown() profiling.Result { return v.shown }

// Nodes is how many nodes the results are of.
func (v view) Nodes() int { return len(v.Result.NodeNames()) }

// Observed is what a collector covered, if that was not all the time.
func (v view) Observed(c profiling.Collector) *profiling.Coverage {
	if all, _ := v.Result.Covered(c); !all.Exact {
		return &all
	}
	return nil
}

// Estimates marks captions of figures that a collector did not count to the
// last one.
func (v view) Estimates(c profiling.Collector, caption string) string {
	if v.Observed(c) != nil {
		return caption + " (estimates)"
	}
	return caption
}

// Overhead of one collector over all nodes, in a sentence beside its figures.
func (v view) Overhead(c profiling.Collector) string {
	var all profiling.Overhead
	for _, o := range v.Result.Overhead {
		if o.Collector == c {
			all.SpentNS, all.JobNS, all.WindowNS = all.SpentNS+o.SpentNS, all.JobNS+o.JobNS, all.WindowNS+o.WindowNS
		}
	}
	if all.JobNS == 0 {
		return "Nothing measured in this run what this collector cost."
	}
	return fmt.Sprintf("This collector took %s of the job's CPU time while it observed, measured in windows of %s.",
		advice.Percent(all.Share()), report.Seconds(float64(all.WindowNS)*nanosecond))
}

// LeftOut is the one line on what is Slurm's.
func (v view) LeftOut() string {
	if v.slurms.None() {
		return ""
	}
	return fmt.Sprintf("Left out as Slurm's own: %s. kernelctl run report %d --slurm shows them.", v.slurms, v.Run.ID)
}

// slowCall is one of the slowest calls, as the page has it.
type slowCall struct {
	profiling.SlowCall
	After, Moved uint64
	// Causes with the time of each, the longest first.
	Causes string
}

// Slow calls, at most so many of each name.
func (v view) Slow(most int) []slowCall {
	began := map[string]time.Time{}
	for _, n := range v.Result.Nodes {
		// An agent that started again has another part of the run.
		if first, known := began[n.Name]; !known || n.Begin.Before(first) {
			began[n.Name] = n.Begin
		}
	}
	var all []slowCall
	for _, c := range v.shown.Syscalls.Slow(most) {
		slow := slowCall{SlowCall: c, After: uint64(max(0, c.At.Sub(began[c.Node])))}
		if c.Bytes != nil {
			slow.Moved = *c.Bytes
		}
		causes := slices.DeleteFunc(profiling.Causes(), func(cause profiling.Cause) bool { return c.Split[cause].NS == 0 })
		slices.SortStableFunc(causes, func(a, b profiling.Cause) int { return cmp.Compare(c.Split[b].NS, c.Split[a].NS) })
		for i, cause := range causes {
			if i > 0 {
				slow.Causes += ", "
			}
			slow.Causes += fmt.Sprintf("%s %s", cause, report.Seconds(float64(c.Split[cause].NS)*nanosecond))
		}
		all = append(all, slow)
	}
	return all
}

// Mixed are the calls that both Slurm and the job made.
func (v view) Mixed() string { return list(v.slurms.Mixed) }

// MoreFiles is how many files are not among the first ones.
func (v view) MoreFiles(most int) uint64 {
	return uint64(max(0, len(v.shown.IO.Files)-most)) + v.shown.IO.FilesLeftOut
}

// NoRoom is how many reads and writes are of files that found no room on their node.
func (v view) NoRoom() uint64 {
	over := v.shown.IO.Overflow
	return over.Read.Calls + over.Write.Calls
}

// Dropped is how many events of the noise found no room on their node.
func (v view) Dropped() (events uint64) {
	for _, c := range v.Result.Noise.CPUs {
		events += c.Dropped
	}
	return events
}

// Worst single event of the noise.
func (v view) Worst() string {
	cpu, worst, ok := v.Result.Noise.Worst()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s: %s %s on node %s, CPU %d, at %s", report.Seconds(float64(worst.MostNS)*nanosecond),
		worst.Kind, worst.Name, cpu.Node, cpu.CPU, worst.At.UTC().Format("15:04:05.000"))
}

func when(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func list(words []string) string { return strings.Join(words, ", ") }

// capital begins a list of words as a sentence.
func capital(words []string) string {
	text := list(words)
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func adviceOf(all []profiling.Advice) string {
	var what []string
	for _, a := range all {
		what = append(what, a.What)
	}
	return strings.Join(what, "; ")
}

const nanosecond = 1e-9

func secondsOf(ns uint64) report.Cell {
	v := float64(ns) * nanosecond
	return report.Figure(v, report.Seconds(v))
}

func countOf(n uint64) report.Cell { return report.Figure(float64(n), report.Count(float64(n))) }

func bytesOf(n uint64) report.Cell { return report.Figure(float64(n), report.Bytes(int64(n))) }

func percent(share float64) report.Cell { return report.Figure(share, advice.Percent(share)) }

func percentOf(part, all uint64) report.Cell {
	if all == 0 {
		return report.Missing()
	}
	return percent(float64(part) / float64(all))
}

func quotient(all, of uint64, cell func(uint64) report.Cell) report.Cell {
	if of == 0 {
		return report.Missing()
	}
	return cell(all / of)
}

func cpuTime(nodes []profiling.Node) report.Chart {
	chart := report.Chart{Caption: "Where the CPU time went", Axis: "CPU time", Tick: report.Seconds, Series: report.Named("in the program", "in the kernel")}
	for _, n := range nodes {
		chart.Rows = append(chart.Rows, report.ChartRow{Label: n.Name, Sizes: []float64{float64(n.UserNS) * nanosecond, float64(n.SystemNS) * nanosecond}})
	}
	return chart
}

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

func causesOf(caption string, calls []profiling.Syscall) report.Chart {
	chart := report.Chart{Caption: caption, Axis: "time in calls", Tick: report.Seconds}
	for i, g := range groups {
		chart.Series = append(chart.Series, report.Series{Name: g.name, Colour: i})
	}
	for _, c := range calls {
		row := report.ChartRow{Label: c.Name, Sizes: make([]float64, len(groups))}
		for i, g := range groups {
			for _, cause := range g.causes {
				row.Sizes[i] += float64(c.Split[cause].NS) * nanosecond
			}
		}
		chart.Rows = append(chart.Rows, row)
	}
	return chart
}

func histogram(caption, axis string, bound func(float64) string, unit float64, names []string, counts []profiling.Histogram) report.Chart {
	all := make([][]uint64, len(counts))
	for i, c := range counts {
		all[i] = c
	}
	return report.Chart{Caption: caption, Axis: axis, Tick: report.Count, Series: report.Named(names...), Rows: report.Histogram(all, unit, bound)}
}

func sizesOf(caption string, io *profiling.IO) report.Chart {
	regular := io.Total(profiling.RegularFiles)
	return histogram(caption, "calls by bytes", func(v float64) string { return report.Bytes(int64(v)) }, 1,
		[]string{"reads", "writes"}, []profiling.Histogram{regular.Read.Sizes, regular.Write.Sizes})
}

// flameOf puts the stacks together into a tree.
func flameOf(g *profiling.CallGraph) report.Flame {
	root := &report.Frame{Name: "kernel"}
	for _, s := range g.Stacks {
		root.Add(s.Frames, float64(s.Samples)*float64(g.PeriodNS)*nanosecond)
	}
	return report.Flame{Caption: "Where in the kernel the time went", Axis: "CPU time; below each function those that it called", Root: root}
}

// eventsOf the noise by kind; nil where there were none.
func eventsOf(n *profiling.Noise) report.Component {
	kinds := map[profiling.NoiseKind]profiling.Histogram{}
	for _, c := range n.CPUs {
		for _, s := range c.Sources {
			kinds[s.Kind] = kinds[s.Kind].Plus(s.Times)
		}
	}
	var names []string
	var counts []profiling.Histogram
	for _, kind := range []profiling.NoiseKind{profiling.NoiseIRQ, profiling.NoiseSoftIRQ, profiling.NoiseNMI, profiling.NoiseThread} {
		if h := kinds[kind]; h.Count() > 0 {
			names, counts = append(names, string(kind)), append(counts, h)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return histogram("How long single events took", "events by their time", report.Seconds, nanosecond, names, counts)
}

// source of noise on a CPU.
type source struct {
	Node string
	CPU  uint32
	profiling.NoiseSource
}

// sourcesOf the noise, what took most first.
func sourcesOf(n *profiling.Noise) []source {
	var all []source
	for _, c := range n.CPUs {
		for _, s := range c.Sources {
			all = append(all, source{c.Node, c.CPU, s})
		}
	}
	slices.SortStableFunc(all, func(a, b source) int { return cmp.Compare(b.NS, a.NS) })
	return all
}
