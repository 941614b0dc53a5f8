// SPDX-License-Identifier: Apache-2.0

// Package runreport makes of a profiling run a page and its JSON, and of two sides
// of runs a page that compares them.
//
// The idea: a report is data first. Report holds the run, what was found and
// what follows from it, in the JSON that report.schema.json describes; the page
// draws that and knows nothing more. Beside each collector's figures stands
// what the collector cost, and the page begins with the decision that the
// figures lead to.
package runreport

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/template"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/stats"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/compare"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// Format is the version of the report's JSON.
const Format = 1

// Schema of the report's JSON; it refers to that of the result.
//
//go:embed report.schema.json
var Schema []byte

// Run is what the broker knows of the run.
type Run struct {
	ID          uint64    `json:"id"`
	State       string    `json:"state"`
	Reason      string    `json:"reason"`
	Job         string    `json:"job"`
	User        string    `json:"user"`
	Kernel      string    `json:"kernel"`
	Collectors  []string  `json:"collectors"`
	RequestedBy string    `json:"requested_by"`
	Began       time.Time `json:"began"`
	Ended       time.Time `json:"ended"`
}

type Report struct {
	Format   int              `json:"format"`
	Made     time.Time        `json:"made"`
	Run      Run              `json:"run"`
	Result   profiling.Result `json:"result"`
	Decision advice.Decision  `json:"decision"`

	// shown is the displayed part of the result, slurms what was left out of that.
	shown  profiling.Result
	slurms profiling.Slurms
}

// New works out what follows from a result. What is Slurm's own is left out of
// the decision, and of the displayed result. The decision names profiles of the site's.
func New(run Run, result profiling.Result, now time.Time, site ...advice.SiteProfile) Report {
	if run.Collectors == nil {
		run.Collectors = []string{}
	}
	r := Report{Format: Format, Made: now.UTC(), Run: run, Result: result}
	r.shown, r.slurms = result.WithoutSlurm()
	r.Decision = advice.Decide(r.shown, site...)
	return r
}

// WithSlurms shows what is Slurm's own, too.
func (r Report) WithSlurms() Report {
	r.shown, r.slurms = r.Result, profiling.Slurms{}
	return r
}

func (r Report) WriteJSON(w io.Writer) error {
	content, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("report of run %d: %w", r.Run.ID, err)
	}
	_, err = w.Write(append(content, '\n'))
	return err
}

// Document is the report as a page or as text.
func (r Report) Document() report.Document { return document.Document(view{r}) }

func (r Report) WriteHTML(w io.Writer) error { return r.Document().WriteHTML(w) }

// WriteText writes the tables for a terminal.
func (r Report) WriteText(w io.Writer) error { return r.Document().WriteText(w) }

//go:embed comparison.tmpl
var comparisonText string

var beside = report.NewView(comparisonText, template.FuncMap{
	"when": when, "median": median,
	"change": optional(func(v float64) string { return fmt.Sprintf("%+.1f %%", 100*v) }),
	"chance": optional(func(v float64) string { return fmt.Sprintf("%.2g", v) }),
})

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
