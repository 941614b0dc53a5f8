// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
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

// Report of one run.
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
// the decision, and of the displayed result.
func New(run Run, result profiling.Result, now time.Time) Report {
	if run.Collectors == nil {
		run.Collectors = []string{}
	}
	r := Report{Format: Format, Made: now.UTC(), Run: run, Result: result}
	r.shown, r.slurms = result.WithoutSlurm()
	r.Decision = advice.Decide(r.shown)
	return r
}

// WithSlurms shows what is Slurm's own, too.
func (r Report) WithSlurms() Report {
	r.shown, r.slurms = r.Result, profiling.Slurms{}
	return r
}

// WriteJSON writes the report for programs.
func (r Report) WriteJSON(w io.Writer) error {
	content, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("report of run %d: %w", r.Run.ID, err)
	}
	_, err = w.Write(append(content, '\n'))
	return err
}

// Document is the report as a page or as text.
func (r Report) Document() report.Document {
	doc := report.Document{
		Title: fmt.Sprintf("Profiling run %d, job %s", r.Run.ID, r.Run.Job),
		Lead:  r.Decision.Headline,
		Foot:  fmt.Sprintf("Made %s from the results of %d nodes. Report format %d.", r.Made.Format(time.RFC3339), len(r.Result.Nodes), Format),
	}
	for _, section := range []func() report.Section{r.decision, r.job, r.calls, r.files, r.graph, r.noise, r.counters, r.cost} {
		if s := section(); len(s.Components) > 0 {
			doc.Sections = append(doc.Sections, s)
		}
	}
	return doc
}

var moods = map[advice.Verdict]report.Mood{
	advice.NothingToGain: report.Neutral, advice.WorthAKernel: report.Good, advice.WorthAChange: report.Good, advice.Unknown: report.Bad,
}

func (r Report) decision() report.Section {
	s := report.Section{ID: "decision", Title: "What would be gained", Lead: "A bound is the most that can be had: the share of the job's CPU time " +
		"that was measured. How much of it a kernel gives back is found out by building and measuring it."}
	s.Components = append(s.Components, report.Notice{Mood: moods[r.Decision.Verdict], Title: "Decision:", Text: r.Decision.Headline})
	if len(r.Decision.Steps) > 0 {
		table := report.Table{Caption: "What to do, the largest bound first",
			Columns: []report.Column{{Title: "Step"}, {Title: "At most", Numeric: true}, {Title: "Why"}, {Title: "How"}}}
		for _, step := range r.Decision.Steps {
			bound := report.Missing()
			if step.Bound != nil {
				bound = report.Figure(*step.Bound, advice.Percent(*step.Bound))
			}
			table.Rows = append(table.Rows, report.Row{report.Text(step.Title), bound, report.Text(step.Why), report.Text(step.How)})
		}
		s.Components = append(s.Components, table)
	}
	if len(r.Decision.Caveats) > 0 {
		s.Components = append(s.Components, report.Paragraph("Not seen, and so perhaps missing above:"), report.List(r.Decision.Caveats))
	}
	return s
}

func (r Report) job() report.Section {
	s := report.Section{ID: "job", Title: "The job"}
	facts := report.Facts{{Name: "Run", Text: fmt.Sprintf("%d, %s", r.Run.ID, r.Run.State)}}
	if r.Run.Reason != "" {
		facts = append(facts, report.Fact{Name: "Reason", Text: r.Run.Reason})
	}
	facts = append(facts,
		report.Fact{Name: "Job", Text: fmt.Sprintf("%s of %s", r.Run.Job, r.Run.User)},
		report.Fact{Name: "Kernel asked for", Text: r.Run.Kernel, Code: true},
		report.Fact{Name: "Requested by", Text: r.Run.RequestedBy})
	table := report.Table{Caption: "CPU time of the job, node by node", Columns: []report.Column{
		{Title: "Node"}, {Title: "Kernel"}, {Title: "CPUs", Numeric: true}, {Title: "Looked at", Numeric: true},
		{Title: "CPU time", Numeric: true}, {Title: "In the program", Numeric: true}, {Title: "In the kernel", Numeric: true}, {Title: "Share of the kernel", Numeric: true},
	}}
	stack := report.Stack{Caption: "Where the CPU time went", Axis: "CPU time", Tick: report.Seconds, Segments: report.Named("in the program", "in the kernel")}
	for _, n := range r.Result.Nodes {
		share := report.Missing()
		if n.JobNS > 0 {
			share = percentOf(n.SystemNS, n.JobNS)
		}
		table.Rows = append(table.Rows, report.Row{report.Text(n.Name), report.Code(n.Kernel.Release), report.Figure(float64(n.CPUs), fmt.Sprint(n.CPUs)),
			secondsOf(uint64(max(0, n.End.Sub(n.Begin)))), secondsOf(n.JobNS), secondsOf(n.UserNS), secondsOf(n.SystemNS), share})
		stack.Rows = append(stack.Rows, report.StackRow{Label: n.Name, Sizes: []float64{float64(n.UserNS) * nanosecond, float64(n.SystemNS) * nanosecond}})
	}
	s.Components = append(s.Components, facts)
	if len(table.Rows) > 0 {
		s.Components = append(s.Components, stack, table)
	}
	return s
}

// cost is what the measuring took, and what could not be measured.
func (r Report) cost() report.Section {
	s := report.Section{ID: "cost", Title: "What the measuring cost",
		Lead: "The time of the collectors' own programs, in windows spread over the time in which they looked, beside the CPU time that the job used in them."}
	table := report.Table{Caption: "Overhead of each collector on each node", Columns: []report.Column{
		{Title: "Collector"}, {Title: "Node"}, {Title: "Windows", Numeric: true}, {Title: "Events", Numeric: true},
		{Title: "Its time", Numeric: true}, {Title: "The job's time", Numeric: true}, {Title: "Overhead", Numeric: true}}}
	for _, o := range r.Result.Overhead {
		table.Rows = append(table.Rows, report.Row{report.Text(string(o.Collector)), report.Text(o.Node), secondsOf(o.WindowNS), countOf(o.Events),
			secondsOf(o.SpentNS), secondsOf(o.JobNS), report.Figure(o.Share(), advice.Percent(o.Share()))})
	}
	if len(table.Rows) > 0 {
		s.Components = append(s.Components, table)
	}
	if n := r.Result.Noise; n != nil && n.Looking() > 0 {
		s.Components = append(s.Components, report.Paragraph(fmt.Sprintf("Besides, the agent had the job's CPUs for %s of the time that the job wanted them.", advice.Percent(n.Looking()))))
	}
	if len(r.Result.Coverage) > 0 {
		s.Components = append(s.Components, r.coverage())
	}
	refused := report.Table{Caption: "What could not work", Columns: []report.Column{{Title: "Node"}, {Title: "Collector"}, {Title: "Part"}, {Title: "Why"}, {Title: "Remedy"}}}
	for _, u := range r.Result.Refused {
		refused.Rows = append(refused.Rows, report.Row{report.Text(u.Node), report.Text(string(u.Collector)), report.Text(u.Part), report.Text(u.Detail), report.Text(u.Remedy)})
	}
	if len(refused.Rows) > 0 {
		s.Components = append(s.Components, refused)
	}
	return s
}

// overhead of one collector over all nodes, in a sentence beside its figures.
func (r Report) overhead(c profiling.Collector) string {
	var all profiling.Overhead
	for _, o := range r.Result.Overhead {
		if o.Collector == c {
			all.SpentNS, all.JobNS, all.WindowNS = all.SpentNS+o.SpentNS, all.JobNS+o.JobNS, all.WindowNS+o.WindowNS
		}
	}
	if all.JobNS == 0 {
		return "What this collector cost was not measured in this run."
	}
	return fmt.Sprintf("To collect this took %s of the job's CPU time while it looked, measured in windows of %s.",
		advice.Percent(all.Share()), report.Seconds(float64(all.WindowNS)*nanosecond))
}

const nanosecond = 1e-9

func secondsOf(ns uint64) report.Cell {
	v := float64(ns) * nanosecond
	return report.Figure(v, report.Seconds(v))
}

func countOf(n uint64) report.Cell { return report.Figure(float64(n), report.Count(float64(n))) }

func bytesOf(n uint64) report.Cell { return report.Figure(float64(n), report.Bytes(int64(n))) }

func percentOf(part, all uint64) report.Cell {
	if all == 0 {
		return report.Missing()
	}
	share := float64(part) / float64(all)
	return report.Figure(share, advice.Percent(share))
}

// WriteHTML writes the page.
func (r Report) WriteHTML(w io.Writer) error { return r.Document().WriteHTML(w) }

// WriteText writes the tables for a terminal.
func (r Report) WriteText(w io.Writer) error { return r.Document().WriteText(w) }
