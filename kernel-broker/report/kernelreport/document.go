// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// Exactness stands on every report: it is what the figures are not.
const Exactness = "Instructions are not time. What is counted here are the instructions that the kernel executed for one operation " +
	"of a workload, which an emulator repeats exactly and which says nothing of how long each of them takes."

// WriteHTML writes the page.
func (r Report) WriteHTML(w io.Writer) error { return r.Document().WriteHTML(w) }

// Document is the report as a page or as text.
func (r Report) Document() report.Document {
	v := view{Report: r}
	doc := report.Document{Title: v.title(), Lead: v.lead(), Foot: v.foot()}
	for _, section := range []report.Section{
		v.verdict(), v.workloads(), v.size(), v.instructions(), v.wallTime(), v.emulatedTime(),
		v.branches(), v.otherCounts(), v.checks(), v.options(), v.profile(), v.symbols(), v.provenance(), v.cost(), v.how(),
	} {
		if section.ID != "" {
			doc.Sections = append(doc.Sections, section)
		}
	}
	return doc
}

// view makes sections of a report; one that has nothing to say has no ID.
type view struct{ Report }

func (v view) title() string {
	f := v.Facts
	if f.Subject == "" {
		return f.Title
	}
	return fmt.Sprintf("Kernel %s for %s", f.Subject, f.Application)
}

func (v view) lead() string {
	f := v.Facts
	if f.Subject == "" {
		return fmt.Sprintf("%s side by side on %s. %s", plural(len(f.Kernels), "kernel", "kernels"), plural(len(f.Workloads), "workload", "workloads"), Exactness)
	}
	k := f.kernel(f.Subject)
	return fmt.Sprintf("%s, release %s, build %s. %s", k.Title, k.Release, k.BuildID, Exactness)
}

func (v view) foot() string {
	f := v.Facts
	return fmt.Sprintf("Made %s on %s by: %s. Report format %d.", f.Made, f.Machine, f.Command, Format)
}

func (v view) verdict() report.Section {
	f, given := v.Facts, v.Figures.Verdict
	if given == nil {
		return report.Section{}
	}
	notice := report.Notice{Mood: report.Bad, Text: sentence(given.Reason)}
	switch given.Outcome {
	case verdict.Benefit:
		notice.Mood, notice.Title = report.Good, fmt.Sprintf("Benefit: %s is better than %s for %s%s.", f.Subject, f.Current, f.Application, Titled(unequalOf(given.Comparisons)))
	case verdict.NoBenefit:
		notice.Title = fmt.Sprintf("No benefit: %s stays a candidate and is not published for %s.", f.Subject, f.Application)
	case verdict.Refused:
		notice.Title = fmt.Sprintf("No verdict: %s stays a candidate and is not published for %s.", f.Subject, f.Application)
	}
	section := report.Section{ID: "verdict", Title: "Verdict", Components: []report.Component{notice}}
	if len(given.Comparisons) > 0 {
		section.Components = append(section.Components, comparisonTable(
			"What decided: the application's own workload, with data that the kernel was not trained on", given.Comparisons))
	}
	return section
}

// unequalOf has why comparisons are not between equals, each reason once.
func unequalOf(comparisons []verdict.Comparison) []string {
	var all []string
	for _, c := range comparisons {
		for _, why := range c.Unequal {
			if !slices.Contains(all, why) {
				all = append(all, why)
			}
		}
	}
	return all
}

func comparisonTable(caption string, comparisons []verdict.Comparison) report.Table {
	table := report.Table{Caption: caption, Columns: []report.Column{
		{Title: "Comparison"},
		{Title: "Candidate", Numeric: true}, {Title: "Current", Numeric: true}, {Title: "Change", Numeric: true},
		{Title: "Spread", Numeric: true}, {Title: "p", Numeric: true}, {Title: "Standing"}, {Title: "Why"},
	}}
	for _, c := range comparisons {
		p := report.Text("exact")
		if c.Test != nil {
			p = report.Figure(c.Test.P, fmt.Sprintf("%.3g", c.Test.P))
		} else if c.Method != verdict.ByExactCount {
			p = report.Missing()
		}
		table.Rows = append(table.Rows, report.Row{
			report.Text(c.Title()), amount(c.Of.Median, c.Unit), amount(c.To.Median, c.Unit), change(&c),
			amount(c.Spread, c.Unit), p, report.Text(string(c.Standing)), report.Text(c.Reason),
		})
	}
	return table
}

// workloads with what one operation of each is, which all figures are per.
func (v view) workloads() report.Section {
	if len(v.Facts.Workloads) == 0 {
		return report.Section{}
	}
	table := report.Table{Caption: "What was run", Columns: []report.Column{
		{Title: "Workload"}, {Title: "What it does"}, {Title: "Operation"}, {Title: "Runs (seed, size)"},
	}}
	for _, w := range v.Facts.Workloads {
		var runs []string
		for _, m := range v.Figures.Measured {
			run := fmt.Sprintf("%d, %d", m.Run.Seed, m.Run.Size)
			if m.Run.Workload == w.Name && !slices.Contains(runs, run) {
				runs = append(runs, run)
			}
		}
		table.Rows = append(table.Rows, report.Row{report.Text(w.Name), report.Text(w.Description), report.Text(w.Operation), report.Text(strings.Join(runs, "; "))})
	}
	return report.Section{ID: "workloads", Title: "Workloads", Components: []report.Component{table}}
}

func (v view) checks() report.Section {
	if len(v.Facts.Checks) == 0 {
		return report.Section{}
	}
	table := report.Table{
		Caption: "Workloads that check for correctness",
		Columns: []report.Column{{Title: "Workload"}, {Title: "Kernel"}, {Title: "Result"}, {Title: "Detail"}},
	}
	for _, c := range v.Facts.Checks {
		result := report.Text("passed")
		if !c.Passed {
			result = report.Cell{Text: "FAILED", Strong: true, Shade: 3}
		}
		table.Rows = append(table.Rows, report.Row{report.Text(c.Workload), report.Text(c.Kernel), result, report.Text(c.Detail)})
	}
	return report.Section{ID: "checks", Title: "Correctness", Components: []report.Component{table}}
}

func mitigationsRule(rules verdict.Rules) string {
	const rule = "Kernels are compared at equal processor mitigations. Where that is not so, the title of the table says it, and "
	if rules.UnequalMitigations {
		return rule + "the site's policy lets a kernel win all the same."
	}
	return rule + "no verdict comes of it."
}

func (v view) how() report.Section {
	rules := v.Facts.Rules
	return report.Section{ID: "how", Title: "How to read this", Components: []report.Component{report.List{
		"Every figure is a cost for one operation of a workload, so less is better; a change of -4.5 % means that the kernel needs 4.5 % less.",
		fmt.Sprintf("Exact samples repeat to the last instruction on one build of a kernel. Other builds of the same code differ a little, so a difference up to %v of the figure says nothing. Inexact samples have a spread, the distance between the quartiles of the repetitions, and a probability p by Welch's t-test that the difference is chance.", rules.Resolution),
		fmt.Sprintf("A kernel wins when it is better by more than the spread, at p below %v, with at least %d repetitions, by at least %v of the current figure, and when it passes the checks. A question mark behind a change says that it may be chance.",
			rules.Significance, rules.LeastRepetitions, rules.LeastGain),
		mitigationsRule(rules),
		"Figures marked as a model come from a model of a cache or a branch predictor. They depend on where functions happen to lie, and never decide.",
		"Training and test runs differ in seed and size.",
	}}}
}
