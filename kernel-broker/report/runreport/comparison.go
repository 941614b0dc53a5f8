// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	"fmt"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/compare"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// ComparisonDocument sets two sides of runs beside each other.
func ComparisonDocument(c compare.Comparison, now time.Time) report.Document {
	doc := report.Document{
		Title: fmt.Sprintf("%s beside %s", c.A, c.B), Lead: c.Significance,
		Foot: fmt.Sprintf("Made %s.", now.UTC().Format(time.RFC3339)),
	}
	var groups []string
	rows := map[string][]compare.Row{}
	for _, r := range c.Rows {
		if rows[r.Group] == nil {
			groups = append(groups, r.Group)
		}
		rows[r.Group] = append(rows[r.Group], r)
	}
	for i, group := range groups {
		s := report.Section{ID: fmt.Sprintf("group-%d", i+1), Title: group}
		if i == 0 && len(c.Unequal) > 0 {
			s.Components = append(s.Components, report.Notice{Mood: report.Bad, Title: "Not alike:", Text: "the sides are not runs of the same thing"}, report.List(c.Unequal))
		}
		s.Components = append(s.Components, comparisonTable(c, group, rows[group]))
		doc.Sections = append(doc.Sections, s)
	}
	return doc
}

func comparisonTable(c compare.Comparison, group string, rows []compare.Row) report.Table {
	table := report.Table{Caption: "Medians of " + group, Columns: []report.Column{{Title: "Figure"}, {Title: c.A, Numeric: true}, {Title: c.B, Numeric: true},
		{Title: "Change", Numeric: true}, {Title: "p", Numeric: true}, {Title: "Difference"}}}
	for _, r := range rows {
		change, p := report.Missing(), report.Missing()
		if r.Change != nil {
			change = report.Figure(*r.Change, fmt.Sprintf("%+.1f %%", 100**r.Change))
		}
		if r.P != nil {
			p = report.Figure(*r.P, fmt.Sprintf("%.2g", *r.P))
		}
		standing := report.Text(string(r.Standing))
		standing.Strong = r.Standing == compare.Less || r.Standing == compare.More
		table.Rows = append(table.Rows, report.Row{report.Text(r.Name), median(r.A, r.Unit), median(r.B, r.Unit), change, p, standing})
	}
	return table
}

func median(s *stats.Summary, unit string) report.Cell {
	if s == nil {
		return report.Missing()
	}
	text := report.Count(s.Median)
	switch unit {
	case "s":
		text = report.Seconds(s.Median)
	case "share":
		text = advice.Percent(s.Median)
	case "B":
		text = report.Bytes(int64(s.Median))
	}
	return report.Figure(s.Median, text)
}
