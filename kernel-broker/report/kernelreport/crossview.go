// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// cross shows every application on every kernel.
func (v view) cross() report.Section {
	section := report.Section{
		ID: "cross", Title: "Every application on every kernel",
		Lead: "A kernel made for one application may cost another. An application's own kernel is marked with a star.",
	}
	for _, table := range v.Figures.Cross {
		if len(table.Rows) == 0 {
			continue
		}
		section.Parts = append(section.Parts, v.crossTables(table)...)
	}
	if len(section.Parts) == 0 {
		return report.Section{}
	}
	return section
}

func (v view) crossTables(cross verdict.Cross) []report.Part {
	words := capital(verdict.Words(cross.Metric))
	var parts []report.Part
	if cross.Slim != "" {
		parts = append(parts, crossTable(cross, words+" against "+cross.Slim+unequalCells(cross),
			func(c verdict.Cell) *float64 { return c.ToSlim }, func(m verdict.Mean) *float64 { return m.ToSlim }))
	}
	if cross.Stock != "" {
		parts = append(parts, crossTable(cross, words+" against "+cross.Stock+titled(v.Figures.unequal(toStock)),
			func(c verdict.Cell) *float64 { return c.ToStock }, func(m verdict.Mean) *float64 { return m.ToStock }))
	}
	return append(parts, crossTable(cross, words+" against the best kernel for each application"+unequalCells(cross),
		func(c verdict.Cell) *float64 { return c.ToBest }, nil), places(cross))
}

func unequalCells(table verdict.Cross) string {
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
	return titled(all)
}

func crossTable(cross verdict.Cross, caption string, of func(verdict.Cell) *float64, mean func(verdict.Mean) *float64) report.Table {
	table := report.Table{Caption: caption, Columns: []report.Column{{Title: "Application"}}}
	for _, kernel := range cross.Kernels {
		table.Columns = append(table.Columns, report.Column{Title: kernel, Numeric: true})
	}
	for _, row := range cross.Rows {
		line := report.Row{report.Text(row.Application)}
		for _, c := range row.Cells {
			cell := relative(of(c))
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
		foot = append(foot, relative(mean(m)))
	}
	table.Foot = []report.Row{foot}
	if onOwn := cross.OnOwn; onOwn != nil && mean(*onOwn) != nil {
		table.Note = fmt.Sprintf("Applications on their own kernels, geometric mean: %s.", verdict.Percent(*mean(*onOwn)-1))
	}
	return table
}

// places says whether each application is best on its own kernel.
func places(cross verdict.Cross) report.Table {
	table := report.Table{
		Caption: "Is each application best on its own kernel?",
		Columns: []report.Column{{Title: "Application"}, {Title: "Own kernel"}, {Title: "Place"}, {Title: "Best"}},
		Note:    "Kernels between which the figures do not decide are tied. One at other mitigations takes no part.",
	}
	for _, row := range cross.Rows {
		place := "–"
		switch row.Place {
		case verdict.First:
			place = "best"
		case verdict.Tied:
			place = "tied for best"
		case verdict.Behind:
			place = "beaten by " + strings.Join(row.Beaten, ", ")
		}
		own := row.Own
		if own == "" {
			own = "–"
		}
		table.Rows = append(table.Rows, report.Row{
			report.Text(row.Application), report.Text(own), {Text: place, Strong: row.Place == verdict.First}, report.Text(strings.Join(row.Best, ", ")),
		})
	}
	return table
}
