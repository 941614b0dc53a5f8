// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	_ "embed"
	"fmt"
	"slices"
	"text/template"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/compare"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

//go:embed comparison.tmpl
var comparisonText string

var beside = report.NewView(comparisonText, template.FuncMap{
	"when": when, "median": median,
	"change": optional(func(v float64) string { return fmt.Sprintf("%+.1f %%", 100*v) }),
	"chance": optional(func(v float64) string { return fmt.Sprintf("%.2g", v) }),
})

// group of figures.
type group struct {
	ID, Name string
	Rows     []compare.Row
}

// ComparisonDocument sets two sides of runs beside each other.
func ComparisonDocument(c compare.Comparison, now time.Time) report.Document {
	var groups []group
	for _, r := range c.Rows {
		i := slices.IndexFunc(groups, func(g group) bool { return g.Name == r.Group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{ID: fmt.Sprintf("group-%d", i+1), Name: r.Group})
		}
		groups[i].Rows = append(groups[i].Rows, r)
	}
	return beside.Document(struct {
		compare.Comparison
		Groups []group
		Made   time.Time
	}{c, groups, now})
}

// optional makes the cell of a figure that may be missing.
func optional(text func(float64) string) func(*float64) report.Cell {
	return func(v *float64) report.Cell {
		if v == nil {
			return report.Missing()
		}
		return report.Figure(*v, text(*v))
	}
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
