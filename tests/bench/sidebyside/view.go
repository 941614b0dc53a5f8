// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// cross shows every application on every kernel.
func (r Report) cross() report.Section {
	section := report.Section{
		ID: "cross", Title: "Every application on every kernel",
		Lead: "A kernel made for one application may cost another. An application's own kernel is marked with a star.",
	}
	for _, table := range r.Cross {
		if len(table.Rows) == 0 {
			continue
		}
		section.Components = append(section.Components, r.crossTables(table)...)
	}
	if len(section.Components) == 0 {
		return report.Section{}
	}
	return section
}

func (r Report) crossTables(cross Cross) []report.Component {
	words := capital(verdict.MetricName(cross.Metric))
	var parts []report.Component
	if cross.Slim != "" {
		parts = append(parts, crossTable(cross, words+" against "+cross.Slim+unequalCells(cross),
			func(c Cell) *float64 { return c.ToSlim }, func(m Mean) *float64 { return m.ToSlim }))
	}
	if cross.Stock != "" {
		parts = append(parts, crossTable(cross, words+" against "+cross.Stock+kernelreport.Titled(unequal(r.Figures, toStock)),
			func(c Cell) *float64 { return c.ToStock }, func(m Mean) *float64 { return m.ToStock }))
	}
	return append(parts, crossTable(cross, words+" against the best kernel for each application"+unequalCells(cross),
		func(c Cell) *float64 { return c.ToBest }, nil), places(cross))
}

func unequalCells(table Cross) string {
	var all []string
	for _, row := range table.Rows {
		for _, cell := range row.Cells {
			for _, why := range cell.Unequal {
				if !slices.Contains(all, why) {
					all = append(all, why)
				}
			}
		}
	}
	return kernelreport.Titled(all)
}

func crossTable(cross Cross, caption string, of func(Cell) *float64, mean func(Mean) *float64) report.Table {
	table := report.Table{Caption: caption, Columns: []report.Column{{Title: "Application"}}}
	for _, kernel := range cross.Kernels {
		table.Columns = append(table.Columns, report.Column{Title: kernel, Numeric: true})
	}
	for _, row := range cross.Rows {
		line := report.Row{report.Text(row.Application)}
		for _, c := range row.Cells {
			cell := kernelreport.Relative(of(c))
			if c.Kernel == row.Own {
				cell.Text, cell.Strong = "* "+cell.Text, true
			}
			line = append(line, cell)
		}
		table.Rows = append(table.Rows, line)
	}
	if mean == nil {
		return table
	}
	foot := report.Row{report.Text("geometric mean")}
	for _, m := range cross.Means {
		foot = append(foot, kernelreport.Relative(mean(m)))
	}
	table.Foot = []report.Row{foot}
	if onOwn := cross.OnOwn; onOwn != nil && mean(*onOwn) != nil {
		table.Note = fmt.Sprintf("Applications on their own kernels, geometric mean: %s.", verdict.Percent(*mean(*onOwn)-1))
	}
	return table
}

// places says whether each application is best on its own kernel.
func places(cross Cross) report.Table {
	table := report.Table{
		Caption: "Is each application best on its own kernel?",
		Columns: []report.Column{{Title: "Application"}, {Title: "Own kernel"}, {Title: "Place"}, {Title: "Best"}},
		Note:    "Kernels between which the figures do not decide are tied. One at other mitigations takes no part.",
	}
	for _, row := range cross.Rows {
		place := "–"
		switch row.Place {
		case First:
			place = "best"
		case Tied:
			place = "tied for best"
		case Behind:
			place = "beaten by " + strings.Join(row.Beaten, ", ")
		}
		own := row.Own
		if own == "" {
			own = "–"
		}
		table.Rows = append(table.Rows, report.Row{
			report.Text(row.Application), report.Text(own), {Text: place, Strong: row.Place == First}, report.Text(strings.Join(row.Best, ", ")),
		})
	}
	return table
}

// goals as a table.
func (r Report) goals() report.Section {
	if len(r.Goals) == 0 {
		return report.Section{}
	}
	table := report.Table{
		Caption: "What the applications' own kernels were to reach",
		Columns: []report.Column{{Title: "Goal"}, {Title: "Asked"}, {Title: "Found"}, {Title: "Reached"}},
	}
	for _, g := range r.Goals {
		reached := "no"
		if g.Reached {
			reached = "yes"
		}
		table.Rows = append(table.Rows, report.Row{report.Text(g.Name), report.Text(g.Asked), report.Text(g.Found), {Text: reached, Strong: g.Reached}})
	}
	return report.Section{ID: "goals", Title: "Goals", Components: []report.Component{table}}
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func toSlim(m kernelreport.Measured) *kernelreport.Against  { return m.ToSlim }
func toStock(m kernelreport.Measured) *kernelreport.Against { return m.ToStock }

// unequal says why the comparisons with a reference are not between equals,
// each reason once.
func unequal(f kernelreport.Figures, to func(kernelreport.Measured) *kernelreport.Against) []string {
	var all []string
	for _, m := range f.Measured {
		if c := to(m); c != nil {
			for _, why := range c.Unequal {
				if !slices.Contains(all, why) {
					all = append(all, why)
				}
			}
		}
	}
	return all
}
