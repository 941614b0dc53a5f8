// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// profile shows how the profiles were used: of the subject alone, or of each
// kernel of a bench.
func (v view) profile() report.Section {
	table := report.Table{
		Caption: "Objects and functions by what the compiler said of their profile",
		Columns: []report.Column{
			{Title: "Kernel"}, {Title: "Objects with a profile", Numeric: true}, {Title: "Excluded", Numeric: true},
			{Title: "Functions that do not match", Numeric: true}, {Title: "Functions that moved", Numeric: true}, {Title: "Objects without", Numeric: true},
		},
		Note: "A function that does not match has another flow than the one that was counted, and is compiled without counters; one that moved only stands in another line.",
	}
	var lists []report.Component
	for _, k := range v.Facts.Kernels {
		p := k.Profile
		if p == nil || v.Facts.Subject != "" && k.Name != v.Facts.Subject {
			continue
		}
		table.Rows = append(table.Rows, report.Row{
			{Text: k.Name, Strong: true}, count(p.Objects), count(len(p.Excluded)),
			count(len(p.Mismatched)), count(len(p.Moved)), count(len(p.Missing)),
		})
		lists = append(lists, profileParts(k.Name, *p)...)
	}
	if len(table.Rows) == 0 {
		return report.Section{}
	}
	return report.Section{ID: "profile", Title: "Profile", Components: append([]report.Component{table}, lists...)}
}

func profileParts(kernel string, p Profile) []report.Component {
	var parts []report.Component
	if len(p.Excluded) > 0 {
		table := report.Table{Caption: kernel + ": objects compiled without their profile", Columns: []report.Column{{Title: "Object"}, {Title: "Reason"}}}
		for _, e := range p.Excluded {
			table.Rows = append(table.Rows, report.Row{report.Code(e.Object), report.Text(e.Reason)})
		}
		parts = append(parts, table)
	}
	for _, list := range []struct {
		title string
		names []string
	}{
		{"functions that do not match their profile", p.Mismatched},
		{"functions that moved", p.Moved},
		{"objects that have no profile", p.Missing},
	} {
		if len(list.names) > 0 {
			title := fmt.Sprintf("%s: %s (%d)", kernel, list.title, len(list.names))
			parts = append(parts, report.Folded{Title: title, Components: []report.Component{report.List(list.names)}})
		}
	}
	return parts
}

// count is a number of which 0 is known.
func count(n int) report.Cell { return report.Figure(float64(n), report.Count(float64(n))) }

// slimmed sums up the options in sentences.
func (v view) slimmed() []report.Component {
	s := v.Facts.Slimming
	if s == nil {
		return nil
	}
	facts := report.Facts{
		{Name: "Proposed", Text: plural(s.Proposed, "option", "options")},
		{Name: "Tried", Text: fmt.Sprintf("%s; %s built, booted and put to work",
			plural(s.Configurations, "configuration", "configurations"), plural(s.Kernels, "kernel", "kernels"))},
		{Name: "No longer built", Text: fmt.Sprintf("%s with %s of code", plural(s.ObjectsGone, "object", "objects"), report.Bytes(s.CodeGone))},
	}
	if s.TextBefore > 0 && s.TextAfter > 0 {
		facts = append(facts, report.Fact{Name: "Function text", Text: fmt.Sprintf("%s, was %s", report.Bytes(s.TextAfter), report.Bytes(s.TextBefore))})
	}
	parts := []report.Component{facts}
	if len(s.Runs) > 0 {
		parts = append(parts, slimmingRuns(s.Runs)...)
	}
	if len(s.Missing) > 0 {
		table := report.Table{
			Caption: "Drivers that nodes have devices for and that the kernel never had",
			Columns: []report.Column{{Title: "Node"}, {Title: "Driver"}, {Title: "Device"}},
		}
		for _, m := range s.Missing {
			table.Rows = append(table.Rows, report.Row{report.Text(m.Node), report.Code(m.Module), report.Code(m.Device)})
		}
		parts = append(parts, table)
	}
	return parts
}

// slimmingRuns tells what jobs added to what the workload needs.
func slimmingRuns(runs []SlimmingRun) []report.Component {
	table := report.Table{
		Caption: "Profiling runs of jobs, whose kernel functions stay",
		Columns: []report.Column{{Title: "Run"}, {Title: "On"}, {Title: "Used", Numeric: true}, {Title: "In this kernel", Numeric: true},
			{Title: "Objects that stay for it"}, {Title: "What no fragment asks for"}},
		Note: "A job may have run on another kernel than this one: what it used is known by name. Names that are not in this kernel are of another version, or of what this one was built without.",
	}
	var results report.List
	for _, r := range runs {
		table.Rows = append(table.Rows, report.Row{
			report.Text(fmt.Sprint(r.Run)), report.Code(strings.Join(r.Releases, " ")), count(r.Named), count(r.Found),
			report.Code(strings.Join(r.Objects, " ")), report.Code(strings.Join(slices.Concat(r.Refused, r.Lacking), " ")),
		})
		for _, result := range r.Results {
			results = append(results, fmt.Sprintf("run %d, node %s: %s", r.Run, result.Name, result.Digest))
		}
	}
	return []report.Component{table, report.Folded{Title: fmt.Sprintf("Results of these runs (%d)", len(results)), Components: []report.Component{results}}}
}

// took formats a time, from tenths of a second to hours.
func took(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// cost of the build, step by step.
func (v view) cost() report.Section {
	steps := v.Facts.Cost
	if len(steps) == 0 {
		return report.Section{}
	}
	all, before, plain := CostSum(steps)
	lead := fmt.Sprintf("The steps up to this report took %s, one after the other.", took(all))
	if before > 0 {
		lead += fmt.Sprintf(" %s of that was work of earlier builds, and was not done again.", took(before))
	}
	if plain > 0 {
		lead += fmt.Sprintf(" A plain build of the kernel is %s of it: all is %.1f times as much.", took(plain), all/plain)
	}
	table := report.Table{
		Caption: "What each step took",
		Columns: []report.Column{{Title: "Step"}, {Title: "Time", Numeric: true}, {Title: "Result", Numeric: true}, {Title: "Done"}, {Title: "Of a plain build"}},
		Note:    "Kernels of one source share the objects that they compile alike, so that these are the times of a first build only where nothing had been built before.",
	}
	for _, step := range steps {
		done, part := "for this build", ""
		if step.Before {
			done = "before"
		}
		if step.Plain {
			part = "yes"
		}
		table.Rows = append(table.Rows, report.Row{
			report.Text(step.Step), report.Figure(step.Seconds, took(step.Seconds)), size(step.Bytes), report.Text(done), report.Text(part),
		})
	}
	return report.Section{ID: "cost", Title: "Cost", Lead: lead, Components: []report.Component{report.Folded{Title: "Step by step", Components: []report.Component{table}}}}
}
