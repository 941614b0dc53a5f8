// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	"fmt"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// estimates marks captions of figures that a collector did not count to the
// last one.
func (r Report) estimates(c profiling.Collector, caption string) string {
	if all, _ := r.Result.Covered(c); !all.Exact {
		return caption + " (estimates)"
	}
	return caption
}

// looked is a notice that stands above a collector's figures if it did not look
// all the time.
func (r Report) looked(c profiling.Collector) []report.Component {
	all, _ := r.Result.Covered(c)
	if all.Exact {
		return nil
	}
	return []report.Component{report.Notice{Mood: report.Bad, Title: "Estimates:", Text: fmt.Sprintf(
		"this collector looked for %s of the time, so that all collectors together cost the job no more than %s of its CPU time. "+
			"%s are scaled by %.2f; as seen, and so at least so many or so large, are %s. "+
			"profiling.overhead_percent: 0 in agent.yaml makes figures exact, whatever they cost.",
		advice.Percent(all.Share()), advice.Percent(float64(all.BudgetPPM)/1e6), sentence(all.Scaled), all.Factor(), strings.Join(all.AsSeen, ", "))}}
}

// sentence begins with a capital letter.
func sentence(words []string) string {
	text := strings.Join(words, ", ")
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func (r Report) coverage() report.Table {
	table := report.Table{Caption: "For how much of the job each collector looked", Columns: []report.Column{
		{Title: "Collector"}, {Title: "Node"}, {Title: "Figures"}, {Title: "Looked", Numeric: true}, {Title: "Share of the time", Numeric: true},
		{Title: "Of the job's CPU time", Numeric: true}, {Title: "Pauses", Numeric: true}, {Title: "Scaled by", Numeric: true},
		{Title: "Cost of all", Numeric: true}, {Title: "Allowed", Numeric: true}},
		Note: "The cost has the kernel's way to the programs in it, and what is allowed is for all collectors of the node together."}
	for _, c := range r.Result.Coverage {
		figures, allowed := "exact", report.Text("any")
		if !c.Exact {
			figures = "estimates"
		}
		if c.BudgetPPM > 0 {
			share := float64(c.BudgetPPM) / 1e6
			allowed = report.Figure(share, advice.Percent(share))
		}
		table.Rows = append(table.Rows, report.Row{report.Text(string(c.Collector)), report.Text(c.Node), report.Text(figures), secondsOf(c.LookedNS),
			report.Figure(c.Share(), advice.Percent(c.Share())), percentOf(c.LookedJobNS, c.JobNS), countOf(c.Pauses),
			report.Figure(c.Factor(), fmt.Sprintf("%.2f", c.Factor())), percentOf(c.CostNS, c.JobNS), allowed})
	}
	return table
}
