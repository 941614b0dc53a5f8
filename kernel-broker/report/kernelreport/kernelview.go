// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

// size of the kernels, in files, functions and sections.
func (v view) size() report.Section {
	f := v.Facts
	table := report.Table{
		Caption: "Sizes",
		Columns: []report.Column{
			{Title: "Kernel"}, {Title: "What"},
			{Title: "Image", Numeric: true}, {Title: "Function text", Numeric: true}, {Title: "Against " + cmp.Or(f.Slim, "slim"), Numeric: true},
			{Title: "Functions", Numeric: true}, {Title: "Objects", Numeric: true}, {Title: "Options", Numeric: true},
		},
		Note: "The image is the compressed file that is booted. Function text is the code that stays in memory after the start.",
	}
	slim := f.kernel(f.Slim)
	for _, k := range f.Kernels {
		against := report.Missing()
		if slim != nil && k.Name != slim.Name && slim.Size.FunctionText > 0 && k.Size.FunctionText > 0 {
			against = share(float64(k.Size.FunctionText)/float64(slim.Size.FunctionText) - 1)
		}
		table.Rows = append(table.Rows, report.Row{
			{Text: k.Name, Strong: k.Name == f.Subject}, report.Text(k.Title), size(k.Size.Image), size(k.Size.FunctionText), against,
			number(k.Size.Functions), number(k.Size.Objects), number(k.Size.Options),
		})
	}
	section := report.Section{ID: "size", Title: "Size", Components: []report.Component{table}}
	if names := v.sections(); len(names) > 0 {
		section.Components = append([]report.Component{v.sectionChart(names)}, table, v.sectionTable(names))
	}
	return section
}

// sections of code that any kernel has, the largest first.
func (v view) sections() []string {
	total := map[string]int64{}
	for _, k := range v.Facts.Kernels {
		for _, s := range k.Size.Sections {
			total[s.Name] += s.Bytes
		}
	}
	return slices.SortedFunc(maps.Keys(total), func(a, b string) int {
		return cmp.Or(cmp.Compare(total[b], total[a]), strings.Compare(a, b))
	})
}

func (s Size) section(name string) int64 {
	for _, one := range s.Sections {
		if one.Name == name {
			return one.Bytes
		}
	}
	return 0
}

func (v view) sectionChart(names []string) report.Stack {
	chart := report.Stack{
		Caption:  "Code by section",
		Axis:     "MiB. What a profile says never runs lies in .text.unlikely: it costs memory, and no place in the cache.",
		Tick:     func(mebibytes float64) string { return fmt.Sprintf("%.3g", mebibytes) },
		Segments: report.Named(names...),
	}
	for _, k := range v.Facts.Kernels {
		row := report.StackRow{Label: k.Name}
		for _, name := range names {
			row.Sizes = append(row.Sizes, float64(k.Size.section(name))/(1<<20))
		}
		chart.Rows = append(chart.Rows, row)
	}
	return chart
}

func (v view) sectionTable(names []string) report.Table {
	table := report.Table{Caption: "Code by section", Columns: []report.Column{{Title: "Kernel"}}}
	for _, name := range names {
		table.Columns = append(table.Columns, report.Column{Title: name, Numeric: true})
	}
	for _, k := range v.Facts.Kernels {
		row := report.Row{report.Text(k.Name)}
		for _, name := range names {
			row = append(row, size(k.Size.section(name)))
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

func (v view) options() report.Section {
	options := v.Facts.Options
	if len(options) == 0 {
		return report.Section{}
	}
	var removed, kept []Option
	for _, o := range options {
		if o.Decision == Removed {
			removed = append(removed, o)
		} else {
			kept = append(kept, o)
		}
	}
	section := report.Section{ID: "options", Title: "Options", Lead: fmt.Sprintf("%s removed, %s kept. Code that hangs on several options stands at each of them.",
		plural(len(removed), "option", "options"), plural(len(kept), "option", "options"))}
	section.Components = v.slimmed()
	if len(removed) > 0 {
		section.Components = append(section.Components, optionTable("Options that went, and why", removed))
	}
	if len(kept) > 0 {
		title := "Options that stayed, and why"
		section.Components = append(section.Components, report.Folded{Title: fmt.Sprintf("%s (%d)", title, len(kept)), Components: []report.Component{optionTable(title, kept)}})
	}
	return section
}

func optionTable(caption string, options []Option) report.Table {
	table := report.Table{Caption: caption, Columns: []report.Column{
		{Title: "Option"}, {Title: "What it is"}, {Title: "Reason"}, {Title: "Objects", Numeric: true}, {Title: "Code", Numeric: true},
	}}
	for _, o := range options {
		table.Rows = append(table.Rows, report.Row{report.Code(o.Symbol), report.Text(o.Prompt), report.Text(o.Reason), number(o.Objects), size(o.Bytes)})
	}
	return table
}

func (v view) symbols() report.Section {
	s := v.Facts.Symbols
	if s == nil {
		return report.Section{}
	}
	lead := fmt.Sprintf("%s (%s) ran in the training run. %s (%s) never did and stayed in the kernel.",
		plural(s.HotCount, "function", "functions"), report.Bytes(s.HotBytes), plural(s.ColdCount, "function", "functions"), report.Bytes(s.ColdBytes))
	section := report.Section{ID: "symbols", Title: "Functions, hot and cold", Lead: lead}
	for _, list := range []struct {
		title   string
		symbols []Symbol
	}{{"The functions of which most ran", s.Hottest}, {"The largest functions that never ran", s.Coldest}} {
		if len(list.symbols) > 0 {
			title := fmt.Sprintf("%s (%d shown)", list.title, len(list.symbols))
			section.Components = append(section.Components, report.Folded{Title: title, Components: []report.Component{symbolTable(list.title, list.symbols)}})
		}
	}
	return section
}

// symbolTable leaves out the columns of which nothing is known.
func symbolTable(caption string, symbols []Symbol) report.Table {
	table := report.Table{Caption: caption, Columns: []report.Column{{Title: "Function"}, {Title: "Code", Numeric: true}, {Title: "Ran", Numeric: true}}}
	objects := slices.ContainsFunc(symbols, func(s Symbol) bool { return s.Object != "" })
	runs := slices.ContainsFunc(symbols, func(s Symbol) bool { return s.Runs > 0 })
	if objects {
		table.Columns = append(table.Columns, report.Column{Title: "Object"})
	}
	if runs {
		table.Columns = append(table.Columns, report.Column{Title: "Runs", Numeric: true})
	}
	for _, s := range symbols {
		row := report.Row{report.Code(s.Name), size(s.Bytes), size(s.Ran)}
		if objects {
			row = append(row, report.Code(s.Object))
		}
		if runs {
			row = append(row, number(int(s.Runs)))
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// provenance of the subject, or of each kernel of a bench.
func (v view) provenance() report.Section {
	section := report.Section{ID: "provenance", Title: "Provenance"}
	if k := v.Facts.kernel(v.Facts.Subject); k != nil {
		section.Components = append(section.Components, provenanceFacts(*k))
		return section
	}
	for _, k := range v.Facts.Kernels {
		section.Components = append(section.Components, report.Folded{Title: k.Name + ": " + k.Title, Components: []report.Component{provenanceFacts(k)}})
	}
	return section
}

func provenanceFacts(k Kernel) report.Facts {
	p := k.Provenance
	facts := report.Facts{}
	add := func(name, text string, code bool) {
		if text != "" {
			facts = append(facts, report.Fact{Name: name, Text: text, Code: code})
		}
	}
	add("Release", k.Release, true)
	add("Build id", k.BuildID, true)
	add("Source", strings.TrimSpace(p.Source.Name+" "+p.Source.Digest), true)
	add("Configuration", p.ConfigDigest, true)
	for _, f := range p.Fragments {
		add("Fragment", f.Name+" "+f.Digest, true)
	}
	add("Compiler", strings.TrimSpace(p.Compiler+" "+p.Version), false)
	add("Flags", strings.Join(p.Flags, " "), true)
	for _, patch := range p.Patches {
		add("Patch", fmt.Sprintf("%s %s (upstream: %s)", patch.Name, patch.Digest, patch.Upstream), true)
	}
	if len(p.Patches) == 0 {
		add("Patches", "none", false)
	}
	add("Profile", p.ProfileDigest, true)
	for _, run := range k.Trained {
		add("Trained on", fmt.Sprintf("%s, seed %d, size %d", run.Workload, run.Seed, run.Size), false)
	}
	add("Mitigations", strings.Join(k.Mitigations, "; "), false)
	add("Image", p.ImageDigest, true)
	add("Built by", p.Builder, false)
	add("All inputs", p.InputsKey, true)
	return facts
}
