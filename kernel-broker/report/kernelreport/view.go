// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// Exactness stands on every report: it is what the figures are not.
const Exactness = "Instructions are not time. What is counted here are the instructions that the kernel executed for one operation " +
	"of a workload, which an emulator repeats exactly and which says nothing of how long each of them takes."

// weights says what a string instruction counts.
func weights() string {
	return fmt.Sprintf("A string instruction counts as %d more when it begins, and as one for each %d bytes, whatever the width of its elements.",
		verdict.StringBegin, verdict.StringBytesPerInstruction)
}

//go:embed view.tmpl
var viewText string

var document = report.NewView(viewText, template.FuncMap{
	"amount": amount, "bytes": size, "change": change, "chance": chance, "known": known, "took": func(s float64) report.Cell { return report.Figure(s, took(s)) }, "passed": passed,
	"plural": plural, "sentence": sentence, "size": report.Bytes, "titled": Titled,
	"estimate":  func(e verdict.Estimate) report.Cell { return report.Figure(e.Value, e.String()) },
	"part":      func(s verdict.Share) report.Cell { return report.Figure(s.Value, s.Part()) },
	"unequal":   func(all []verdict.Comparison) string { return Titled(verdict.Unequal(all)) },
	"exactness": func() string { return Exactness }, "weights": weights, "metric": func(name string) string { return capital(verdict.MetricName(name)) }, "join": join, "list": func(all []string) string { return strings.Join(all, "; ") },
})

func (r Report) WriteHTML(w io.Writer) error { return r.Document().WriteHTML(w) }

// Document is the report as a page or as text.
func (r Report) Document() report.Document { return document.Document(view{r}) }

// view is a report with what view.tmpl asks of it.
type view struct{ Report }

// Subjects are the report's kernel, or all of a bench.
func (v view) Subjects() []Kernel {
	if k := v.Facts.kernel(v.Facts.Subject); k != nil {
		return []Kernel{*k}
	}
	return v.Facts.Kernels
}

// ForTheJob says in a sentence what the kernel changes for a job, against the distribution's kernel where that was measured.
func (v view) ForTheJob() string {
	gains := v.Figures.Verdict.Gains
	if len(gains) == 0 {
		return "nothing can be said of what it changes for a job."
	}
	g := gains[0]
	if i := slices.IndexFunc(gains, func(g verdict.Gain) bool { return g.Baseline == verdict.BaselineStock }); i >= 0 {
		g = gains[i]
	}
	if g.Whole == nil {
		return fmt.Sprintf("the kernel does its work with %s instructions than %s. Nobody measured how much of a job that is.", fewer(g.Change.Value), g.Kernel)
	}
	return fmt.Sprintf("%s takes %s instructions than on %s: the kernel is %.0f %% of it and takes %s.",
		g.Share.Of(), fewer(g.Whole.Value), g.Kernel, 100*g.Share.Value, fewer(g.Change.Value))
}

// fewer is a change in words, as in "13 % fewer".
func fewer(change float64) string {
	size := strings.TrimPrefix(strings.TrimPrefix(verdict.Percent(change), "-"), "+")
	if change > 0 {
		return size + " more"
	}
	return size + " fewer"
}

// Runs of a workload, by seed and size.
func (v view) Runs(workload string) string {
	var runs []string
	for _, m := range v.Figures.Measured {
		run := fmt.Sprintf("%d, %d", m.Run.Seed, m.Run.Size)
		if m.Run.Workload == workload && !slices.Contains(runs, run) {
			runs = append(runs, run)
		}
	}
	return strings.Join(runs, "; ")
}

// AgainstSlim is a kernel's function text beside the slim one's.
func (v view) AgainstSlim(k Kernel) report.Cell {
	slim := v.Facts.kernel(v.Facts.Slim)
	if slim == nil || k.Name == slim.Name || slim.Size.FunctionText <= 0 || k.Size.FunctionText <= 0 {
		return report.Missing()
	}
	return share(float64(k.Size.FunctionText)/float64(slim.Size.FunctionText) - 1)
}

// Sections of code that any kernel has, the largest first.
func (v view) Sections() []string {
	total := map[string]int64{}
	for _, k := range v.Facts.Kernels {
		for _, s := range k.Size.Sections {
			total[s.Name] += s.Bytes
		}
	}
	return slices.SortedFunc(maps.Keys(total), func(a, b string) int {
		return cmp.Or(cmp.Compare(total[b], total[a]), strings.Compare(a, b))
	})
}

// Section of a kernel's code in bytes, 0 without it.
func (s Size) Section(name string) int64 {
	for _, one := range s.Sections {
		if one.Name == name {
			return one.Bytes
		}
	}
	return 0
}

func (v view) SectionChart(names []string) report.Chart {
	chart := report.Chart{
		Caption: "Code by section",
		Axis:    "MiB. What a profile says never runs lies in .text.unlikely: it costs memory, and no place in the cache.",
		Tick:    func(mebibytes float64) string { return fmt.Sprintf("%.3g", mebibytes) },
		Series:  report.Named(names...),
	}
	for _, k := range v.Facts.Kernels {
		row := report.ChartRow{Label: k.Name}
		for _, name := range names {
			row.Sizes = append(row.Sizes, float64(k.Size.Section(name))/(1<<20))
		}
		chart.Rows = append(chart.Rows, row)
	}
	return chart
}

func (v view) Decided(decision Decision) []Option {
	return slices.DeleteFunc(slices.Clone(v.Facts.Options), func(o Option) bool { return o.Decision != decision })
}

// costSum is the time of the steps: of all, of what was done before, of a plain build, and how many of those all is.
type costSum struct{ All, Before, Plain, Times float64 }

func (v view) CostSum() costSum {
	var sum costSum
	for _, step := range v.Facts.Cost {
		sum.All += step.Seconds
		if step.Before {
			sum.Before += step.Seconds
		}
		if step.Plain {
			sum.Plain += step.Seconds
		}
	}
	sum.Times = sum.All / sum.Plain
	return sum
}

// metric of a view, with the lines that were measured in it, in the order of the
// figures.
type metric struct {
	view
	name  string
	Lines []line
}

// line of a table: a run, or a part of one.
type line struct {
	of   *metric
	run  verdict.Run
	part string
}

// Metrics are those of the names in which anything was measured.
func (v view) Metrics(names ...string) []*metric {
	var out []*metric
	for _, name := range names {
		one := &metric{view: v, name: name}
		for _, m := range v.Figures.Measured {
			if at := (line{one, m.Run, m.Part}); m.Metric == name && !slices.Contains(one.Lines, at) {
				one.Lines = append(one.Lines, at)
			}
		}
		if len(one.Lines) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// Title of the metric's tables.
func (m *metric) Title() string { return capital(verdict.MetricName(m.name)) }

// Per says what each of the metric's figures is of.
func (m *metric) Per() string {
	for _, one := range m.Figures.Measured {
		if one.Metric == m.name && !verdict.PerOperation(one.Unit) {
			return " in the whole run"
		}
	}
	return " for each operation"
}

// References are the kernels that figures are shown against.
func (m *metric) References() []string {
	return slices.DeleteFunc([]string{m.Facts.Slim, m.Facts.Stock}, func(name string) bool { return name == "" })
}

// Nearest reference that there is: a kernel built the plain way has no other
// slim one beside it.
func (m *metric) Nearest() string { return cmp.Or(m.Facts.Slim, m.Facts.Stock) }

func (m *metric) Exactness() string {
	exact, all := 0, 0
	for _, one := range m.Figures.Measured {
		if one.Metric == m.name {
			all++
			if one.Exact && one.Summary.Least == one.Summary.Most {
				exact++
			}
		}
	}
	switch exact {
	case all:
		return "All of these counts are exact: each repetition gave the same."
	case 0:
		return "None of these counts is exact; half of the repetitions lie within the spread that stands behind each."
	}
	return fmt.Sprintf("%d of these %d counts are exact; the others have their spread behind them.", exact, all)
}

// OfSubject has each comparison of a report's kernel with the nearest one.
func (m *metric) OfSubject() []verdict.Comparison {
	var out []verdict.Comparison
	for _, one := range m.Figures.Measured {
		if c := one.against[m.Nearest()]; one.Metric == m.name && one.Kernel == m.Facts.Subject && c != nil {
			out = append(out, *c)
		}
	}
	return out
}

func (l line) measured(kernel string) *Measured {
	for i, m := range l.of.Figures.Measured {
		if m.Metric == l.of.name && m.Run == l.run && m.Part == l.part && m.Kernel == kernel {
			return &l.of.Figures.Measured[i]
		}
	}
	return nil
}

// Label of a line: the part where there are several, seed and size where a
// workload ran with several.
func (l line) Label() string {
	label := l.run.Workload
	differs := func(by func(line) bool) bool {
		return slices.ContainsFunc(l.of.Lines, func(o line) bool { return o.run.Workload == l.run.Workload && by(o) })
	}
	if differs(func(o line) bool { return o.part != l.part }) {
		label += ": " + l.part
	}
	if differs(func(o line) bool { return o.run != l.run }) {
		label += fmt.Sprintf(", seed %d, size %d", l.run.Seed, l.run.Size)
	}
	return label
}

// On is the line's figure on a kernel.
func (l line) On(kernel string) report.Cell {
	if m := l.measured(kernel); m != nil {
		return withSpread(m.Summary, m.Unit)
	}
	return report.Missing()
}

// against is a metric against a reference.
type against struct {
	*metric
	to string
}

func (m *metric) Against(kernel string) against { return against{m, kernel} }

// Title says it where the sides are not equal.
func (a against) Title() string {
	return fmt.Sprintf("%s against %s%s", a.metric.Title(), a.to, a.unequal())
}

func (a against) unequal() string {
	var all []verdict.Comparison
	for _, m := range a.Figures.Measured {
		if c := m.against[a.to]; c != nil {
			all = append(all, *c)
		}
	}
	return Titled(verdict.Unequal(all))
}

// Kernels that are compared with the reference.
func (a against) Kernels() []string {
	var names []string
	for _, k := range a.Facts.Kernels {
		if k.Name != a.to {
			names = append(names, k.Name)
		}
	}
	return names
}

func (a against) comparison(of line, kernel string) *verdict.Comparison {
	if m := of.measured(kernel); m != nil {
		return m.against[a.to]
	}
	return nil
}

func (a against) Change(of line, kernel string) report.Cell {
	if c := a.comparison(of, kernel); c != nil {
		return change(*c)
	}
	return report.Missing()
}

// Mean of all changes on a kernel; it says of how many, when not of all.
func (a against) Mean(kernel string) report.Cell {
	var ratios []float64
	for _, one := range a.Lines {
		if c := a.comparison(one, kernel); c != nil && c.Change != nil && *c.Change > -1 {
			ratios = append(ratios, 1+*c.Change)
		}
	}
	mean, err := stats.GeometricMean(ratios)
	if err != nil {
		return report.Missing()
	}
	cell := share(mean - 1)
	if len(ratios) < len(a.Lines) {
		cell.Text += fmt.Sprintf(" (of %d)", len(ratios))
	}
	return cell
}

// Dots of all kernels against the slim one, without the stock kernel, whose
// distance would hide the differences of the others; and all against stock.
func (m *metric) Dots() []report.Chart {
	var charts []report.Chart
	for _, chart := range []report.Chart{m.Against(m.Facts.Slim).dots(m.Facts.Stock), m.Against(m.Facts.Stock).dots("")} {
		if len(chart.Rows) > 0 {
			charts = append(charts, chart)
		}
	}
	return charts
}

func (a against) dots(without string) report.Chart {
	base := 100.0
	chart := report.Chart{
		Caption:   fmt.Sprintf("%s for each operation, %s = 100%s", a.metric.Title(), a.to, a.unequal()),
		Axis:      "Per cent of " + a.to + "; to the left is better. The axis does not begin at 0. A line through a mark is its spread.",
		Reference: &base, Span: 2,
	}
	for i, k := range a.Facts.Kernels {
		if k.Name != a.to && k.Name != without {
			chart.Series = append(chart.Series, report.Series{Name: k.Name, Colour: i})
		}
	}
	for _, one := range a.Lines {
		row := report.ChartRow{Label: one.Label()}
		for _, kernel := range chart.Series {
			row.Dots = append(row.Dots, a.dot(one, kernel.Name, row.Label))
		}
		if slices.ContainsFunc(row.Dots, func(d *report.Dot) bool { return d != nil }) {
			chart.Rows = append(chart.Rows, row)
		}
	}
	return chart
}

func (a against) dot(of line, kernel, label string) *report.Dot {
	c := a.comparison(of, kernel)
	if c == nil || c.Change == nil || c.To.Median == 0 {
		return nil
	}
	return &report.Dot{
		Value: 100 * (1 + *c.Change), Spread: 100 * c.Spread / c.To.Median,
		Title: fmt.Sprintf("%s on %s: %s, %s (%s)", kernel, label, inWords(c.Of.Median, c.Unit), verdict.Percent(*c.Change), c.Standing),
	}
}
