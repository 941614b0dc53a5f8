// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Outcome is a finished slimming, for the fragment and the report.
type Outcome struct {
	Name string `json:"name"`
	// Objects of the kernel that ran, by coverage.
	Objects map[Coverage]Sum `json:"objects"`
	// Proposed, and what is left of it.
	Proposed int `json:"proposed"`
	// Gone are the options switched off; Stayed all others that a user
	// could switch off, those to blame among them.
	Gone   []Decision `json:"gone"`
	Stayed []Decision `json:"stayed"`
	// Along are settable options that no longer have what they depend on, or
	// what selected them.
	Along []string `json:"along"`
	// ObjectsGone and CodeGone count what is no longer built.
	ObjectsGone int    `json:"objects_gone"`
	CodeGone    uint64 `json:"code_gone"`
	// Checks are the configurations tried, Kernels the kernels that were
	// built, booted and put to work.
	Checks  int `json:"checks"`
	Kernels int `json:"kernels"`
	// TextBefore and TextAfter are the code sizes of the whole kernel, as the
	// builder gave them.
	TextBefore int64 `json:"text_before,omitempty"`
	TextAfter  int64 `json:"text_after,omitempty"`
	// Missing drivers of nodes, which no slimming took away.
	Missing []Missing `json:"missing,omitempty"`
	// Runs are the jobs' profiling runs that were considered.
	Runs []RunCoverage `json:"witnesses,omitempty"`
	// Final configuration.
	Config kconfig.Config `json:"-"`
}

const width = 78

// Decisions on all options that a user could switch off, in order.
func (o Outcome) Decisions() []Decision {
	all := slices.Concat(o.Gone, o.Stayed)
	for _, symbol := range o.Along {
		all = append(all, Decision{Symbol: symbol, Goes: true, Reason: o.whyAlong(symbol)})
	}
	slices.SortFunc(all, func(a, b Decision) int { return strings.Compare(a.Symbol, b.Symbol) })
	return all
}

// whyAlong names one option that took the other along.
func (o Outcome) whyAlong(symbol string) string {
	for _, gone := range o.Gone {
		if slices.Contains(gone.Takes, symbol) {
			return "goes with " + gone.Symbol
		}
	}
	return "cannot stay without several options that went"
}

// Fragment writes the outcome as a fragment of the catalog: an entry for each
// option that went, in the order of folders, then what stayed and why, as
// comments.
func (o Outcome) Fragment() []byte {
	var text strings.Builder
	comment(&text, fmt.Sprintf("Slimming of %s from a run: %d of %d options proposed went, and %s with %s of code.",
		o.Name, len(o.Gone), o.Proposed, objects(o.ObjectsGone), bytesOf(o.CodeGone)))
	comment(&text, "Made by the kernel factory: change the keep-lists and not this file.")
	for _, w := range o.Runs {
		comment(&text, "- "+w.String()+".")
	}
	if len(o.Gone) == 0 {
		// A fragment without an option is none to those who read it.
		text.WriteByte('\n')
		comment(&text, "Nothing went. This was on for the run only, to have a link map.")
		options(&text, []string{mapOption})
	}
	along := map[string]bool{}
	for _, symbol := range o.Along {
		along[symbol] = true
	}
	for _, decision := range inFolders(o.Gone) {
		text.WriteByte('\n')
		off := []string{decision.Symbol}
		var silent []string
		for _, taken := range decision.Takes {
			if along[taken] {
				off = append(off, taken)
				delete(along, taken)
			} else if !isGone(o.Gone, taken) {
				silent = append(silent, taken)
			}
		}
		comment(&text, title(decision)+decision.Reason+".")
		if len(silent) > 0 {
			comment(&text, "No other option needed "+strings.Join(silent, ", ")+".")
		}
		slices.Sort(off)
		options(&text, off)
	}
	if rest := slices.Sorted(maps.Keys(along)); len(rest) > 0 {
		text.WriteByte('\n')
		comment(&text, "These depend on several of the above.")
		options(&text, rest)
	}
	o.stayed(&text)
	o.missing(&text)
	return []byte(text.String())
}

// missing lists what nodes need and the kernel never had, a line for a driver.
func (o Outcome) missing(text *strings.Builder) {
	if len(o.Missing) == 0 {
		return
	}
	nodes := map[string][]string{}
	wants := map[string]Missing{}
	for _, m := range o.Missing {
		if !slices.Contains(nodes[m.Module], m.Node) {
			nodes[m.Module] = append(nodes[m.Module], m.Node)
		}
		wants[m.Module] = m
	}
	text.WriteByte('\n')
	comment(text, "Missing: nodes need these drivers, and no fragment of the recipe asks for them.")
	for _, module := range slices.Sorted(maps.Keys(nodes)) {
		why := "- " + module
		if options := wants[module].Options; len(options) > 0 {
			why += " (" + strings.Join(options, " ") + ")"
		}
		if device := wants[module].Device; device != "" {
			why += " for " + short(device)
		}
		comment(text, why+": "+strings.Join(nodes[module], " "))
	}
}

func isGone(gone []Decision, symbol string) bool {
	return slices.ContainsFunc(gone, func(d Decision) bool { return d.Symbol == symbol })
}

func options(text *strings.Builder, symbols []string) {
	for _, symbol := range symbols {
		fmt.Fprintf(text, "# CONFIG_%s is not set\n", symbol)
	}
}

func title(d Decision) string {
	if d.Prompt == "" {
		return d.Symbol + ": "
	}
	return d.Prompt + ": "
}

// inFolders orders options by where their largest object is.
func inFolders(decisions []Decision) []Decision {
	ordered := slices.Clone(decisions)
	slices.SortStableFunc(ordered, func(a, b Decision) int {
		return cmp.Or(strings.Compare(firstObject(a), firstObject(b)), strings.Compare(a.Symbol, b.Symbol))
	})
	return ordered
}

// stayed lists each option that stays, one by one where it has a reason of
// its own and together where the reason is the same.
func (o Outcome) stayed(text *strings.Builder) {
	together := map[string][]string{}
	var single []Decision
	for _, decision := range o.Stayed {
		if decision.CodeLess || strings.HasPrefix(decision.Reason, keptPrefix) {
			together[decision.Reason] = append(together[decision.Reason], decision.Symbol)
		} else {
			single = append(single, decision)
		}
	}
	if len(single) > 0 {
		text.WriteByte('\n')
		comment(text, "Stayed, each for a reason of its own:")
		for _, decision := range single {
			comment(text, "- "+decision.Symbol+": "+decision.Reason)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(together)) {
		text.WriteByte('\n')
		comment(text, "Stayed: "+reason+":")
		comment(text, "  "+strings.Join(together[reason], " "))
	}
}

// comment wraps a text. A line of it never looks like an option that is off:
// that begins with the word CONFIG_.
func comment(text *strings.Builder, words string) {
	indent := words[:len(words)-len(strings.TrimLeft(words, " "))]
	line := "#"
	first := true
	for _, word := range strings.Fields(words) {
		word = strings.TrimPrefix(word, "CONFIG_")
		if !first && len(line)+1+len(word) > width {
			text.WriteString(line + "\n")
			line = "#" + indent
			if strings.HasPrefix(words, "- ") {
				line = "#  "
			}
		}
		if first {
			line += indent
		}
		line += " " + word
		first = false
	}
	text.WriteString(line + "\n")
}
