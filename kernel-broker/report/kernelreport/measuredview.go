// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"fmt"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

func (v view) instructions() report.Section {
	metric := verdict.KernelInstructions
	if len(v.lines(metric)) == 0 {
		return report.Section{}
	}
	section := report.Section{
		ID: "instructions", Title: "Kernel instructions for each operation",
		Lead:       v.exactness(metric),
		Components: v.figures(metric),
	}
	if table, ok := v.subjectTable(metric); ok {
		section.Components = append(section.Components, report.Folded{Title: "Spread and significance of each comparison with " + v.nearest().name(v.Facts), Components: []report.Component{table}})
	}
	return section
}

// figures of a metric that decides: charts, values, and changes.
func (v view) figures(metric string) []report.Component {
	parts := append(v.dots(metric), v.values(metric))
	for _, to := range []reference{toSlim, toStock} {
		if to.name(v.Facts) != "" {
			parts = append(parts, v.changes(metric, to))
		}
	}
	return parts
}

// nearest reference that there is: a kernel built the plain way has no other
// slim one beside it.
func (v view) nearest() reference {
	if v.Facts.Slim == "" {
		return toStock
	}
	return toSlim
}

func (v view) wallTime() report.Section {
	return v.time(verdict.WallTime, report.Section{ID: "time", Title: "Wall time of each operation"})
}

func (v view) emulatedTime() report.Section {
	return v.time(verdict.EmulatedTime, report.Section{
		ID: "emulated", Title: "Wall time of the emulator for each operation",
		Lead: "No kernel ran on a processor of its own here. An emulator takes other times for the same instructions, and these decide nothing.",
	})
}

func (v view) time(metric string, section report.Section) report.Section {
	if len(v.lines(metric)) == 0 {
		return report.Section{}
	}
	section.Components = v.figures(metric)
	if table, ok := v.subjectTable(metric); ok {
		section.Components = append(section.Components, table)
	}
	return section
}

func (v view) branches() report.Section {
	section := report.Section{
		ID: "branches", Title: "Why: taken branches, and what models say",
		Lead: "Taken branches are counted. Cache misses and mispredictions come from models of a processor, have luck of the layout in them, and decide nothing.",
	}
	for _, metric := range []string{verdict.TakenBranches, verdict.L1IMisses, verdict.Mispredictions} {
		if len(v.lines(metric)) > 0 {
			if v.nearest().name(v.Facts) != "" {
				section.Components = append(section.Components, v.changes(metric, v.nearest()))
			}
			section.Components = append(section.Components, report.Folded{Title: capital(verdict.MetricName(metric) + " for each operation"), Components: []report.Component{v.values(metric)}})
		}
	}
	if len(section.Components) == 0 {
		return report.Section{}
	}
	return section
}

// otherCounts are shown so that nothing hides in them: work that moved from
// the kernel to the program, or into string instructions.
func (v view) otherCounts() report.Section {
	section := report.Section{
		ID: "other", Title: "Other counts",
		Lead: "A string instruction counts once however often it repeats; its repetitions stand here. User instructions are the program's own, which no kernel should change.",
	}
	for _, metric := range []string{verdict.UserInstructions, verdict.RepIterations} {
		if len(v.lines(metric)) > 0 {
			section.Components = append(section.Components, v.values(metric))
		}
	}
	if len(section.Components) == 0 {
		return report.Section{}
	}
	return section
}

// line of a table: a run, or a part of one.
type line struct {
	run  verdict.Run
	part string
}

// lines that were measured in a metric, in the order of the figures.
func (v view) lines(metric string) []line {
	var lines []line
	for _, m := range v.Figures.Measured {
		if one := (line{m.Run, m.Part}); m.Metric == metric && !slices.Contains(lines, one) {
			lines = append(lines, one)
		}
	}
	return lines
}

func (v view) measured(metric string, of line, kernel string) *Measured {
	for i := range v.Figures.Measured {
		m := &v.Figures.Measured[i]
		if m.Metric == metric && m.Run == of.run && m.Part == of.part && m.Kernel == kernel {
			return m
		}
	}
	return nil
}

// label of a line: the part where there are several, seed and size where a
// workload ran with several.
func (v view) label(of line, metric string) string {
	runs, parts := false, false
	for _, other := range v.lines(metric) {
		if other.run.Workload == of.run.Workload {
			runs = runs || other.run != of.run
			parts = parts || other.part != of.part
		}
	}
	label := of.run.Workload
	if parts {
		label += ": " + of.part
	}
	if runs {
		label += fmt.Sprintf(", seed %d, size %d", of.run.Seed, of.run.Size)
	}
	return label
}

func (v view) exactness(metric string) string {
	exact, all := 0, 0
	for _, m := range v.Figures.Measured {
		if m.Metric == metric {
			all++
			if m.Exact && m.Summary.Least == m.Summary.Most {
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

// values for each operation, kernels side by side.
func (v view) values(metric string) report.Table {
	table := report.Table{
		Caption: capital(verdict.MetricName(metric) + " for each operation"),
		Columns: []report.Column{{Title: "Workload"}},
	}
	for _, k := range v.Facts.Kernels {
		table.Columns = append(table.Columns, report.Column{Title: k.Name, Numeric: true})
	}
	for _, one := range v.lines(metric) {
		row := report.Row{report.Text(v.label(one, metric))}
		for _, k := range v.Facts.Kernels {
			cell := report.Missing()
			if m := v.measured(metric, one, k.Name); m != nil {
				cell = withSpread(m.Summary, m.Unit)
			}
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// changes against a reference, with the geometric means.
func (v view) changes(metric string, to reference) report.Table {
	table := report.Table{
		Caption: capital(fmt.Sprintf("%s against %s%s", verdict.MetricName(metric), to.name(v.Facts), Titled(v.Figures.unequal(to)))),
		Columns: []report.Column{{Title: "Workload"}},
	}
	foot := report.Row{report.Text("geometric mean of these")}
	rows := map[line]report.Row{}
	for _, one := range v.lines(metric) {
		rows[one] = report.Row{report.Text(v.label(one, metric))}
	}
	for _, k := range v.Facts.Kernels {
		if k.Name == to.name(v.Facts) {
			continue
		}
		table.Columns = append(table.Columns, report.Column{Title: k.Name, Numeric: true})
		var ratios []float64
		for _, one := range v.lines(metric) {
			m := v.measured(metric, one, k.Name)
			cell := report.Missing()
			if m != nil {
				c := to.of(*m)
				cell = change(c)
				if c != nil && c.Change != nil && *c.Change > -1 {
					ratios = append(ratios, 1+*c.Change)
				}
			}
			rows[one] = append(rows[one], cell)
		}
		foot = append(foot, meanCell(ratios, len(rows)))
	}
	for _, one := range v.lines(metric) {
		table.Rows = append(table.Rows, rows[one])
	}
	table.Foot = []report.Row{foot}
	return table
}

// meanCell says over how many workloads, when not over all.
func meanCell(ratios []float64, all int) report.Cell {
	mean, err := stats.GeometricMean(ratios)
	if err != nil {
		return report.Missing()
	}
	cell := share(mean - 1)
	if len(ratios) < all {
		cell.Text += fmt.Sprintf(" (of %d)", len(ratios))
	}
	return cell
}

// subjectTable has each comparison of a report's kernel with the nearest one.
func (v view) subjectTable(metric string) (report.Table, bool) {
	var comparisons []verdict.Comparison
	for _, m := range v.Figures.Measured {
		if c := v.nearest().of(m); m.Metric == metric && m.Kernel == v.Facts.Subject && c != nil {
			comparisons = append(comparisons, *c)
		}
	}
	return comparisonTable("Each comparison, with its spread", comparisons), len(comparisons) > 0
}

// dots of all kernels against the slim one, without the stock kernel, whose
// distance would hide the differences of the others; and all against stock.
func (v view) dots(metric string) []report.Component {
	var parts []report.Component
	if chart, ok := v.dotsAgainst(metric, toSlim, v.Facts.Stock); ok {
		parts = append(parts, chart)
	}
	if chart, ok := v.dotsAgainst(metric, toStock, ""); ok {
		parts = append(parts, chart)
	}
	return parts
}

func (v view) dotsAgainst(metric string, to reference, without string) (report.Dots, bool) {
	base, name := 100.0, to.name(v.Facts)
	chart := report.Dots{
		Caption:   capital(fmt.Sprintf("%s for each operation, %s = 100%s", verdict.MetricName(metric), name, Titled(v.Figures.unequal(to)))),
		Axis:      "Per cent of " + name + "; to the left is better. The axis does not begin at 0. A line through a mark is its spread.",
		Reference: &base, Span: 2,
	}
	var kernels []string
	for i, k := range v.Facts.Kernels {
		if k.Name != name && k.Name != without {
			chart.Series = append(chart.Series, report.Series{Name: k.Name, Colour: i})
			kernels = append(kernels, k.Name)
		}
	}
	for _, one := range v.lines(metric) {
		row := report.DotRow{Label: v.label(one, metric)}
		for _, kernel := range kernels {
			row.Dots = append(row.Dots, dotOf(v.measured(metric, one, kernel), row.Label, to))
		}
		if slices.ContainsFunc(row.Dots, func(d *report.Dot) bool { return d != nil }) {
			chart.Rows = append(chart.Rows, row)
		}
	}
	return chart, len(chart.Rows) > 0
}

func dotOf(m *Measured, label string, to reference) *report.Dot {
	if m == nil {
		return nil
	}
	c := to.of(*m)
	if c == nil || c.Change == nil || c.To.Median == 0 {
		return nil
	}
	return &report.Dot{
		Value: 100 * (1 + *c.Change), Spread: 100 * c.Spread / c.To.Median,
		Title: fmt.Sprintf("%s on %s: %s, %s (%s)", m.Kernel, label, inWords(m.Summary.Median, m.Unit), verdict.Percent(*c.Change), c.Standing),
	}
}
