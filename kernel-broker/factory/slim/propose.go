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

// Facts are all that a proposal follows from.
type Facts struct {
	// Config of the kernel that ran.
	Config kconfig.Config
	// Asked are the options that the recipe names. With nil every option that
	// a user could set counts as asked for.
	Asked   map[string]bool
	Kbuild  *Kbuild
	Kconfig *kconfig.Tree
	Uses    Uses
	Keep    Keep
}

// Decision is one option, whether it goes, and why.
type Decision struct {
	Symbol string `json:"symbol"`
	Prompt string `json:"prompt,omitempty"`
	Goes   bool   `json:"goes"`
	Reason string `json:"reason"`
	// Objects that go with the option, and their code in bytes.
	Objects []string `json:"objects,omitempty"`
	Code    uint64   `json:"code,omitempty"`
	// Takes are the other options that cannot stay without it.
	Takes []string `json:"takes,omitempty"`
	// CodeLess is true when no object depends on the option alone, so that
	// nothing in a trace speaks of it.
	CodeLess bool `json:"codeless,omitempty"`
	// held are the options that selected it and that go.
	held []string
}

const keptPrefix = "kept: "

// Proposal is a decision on each option that is on and that users can set.
type Proposal struct {
	Decisions []Decision
}

// Off are the options that the proposal switches off: what others take with
// them stands before those, and what was selected behind what selected it, so
// that every beginning of the list is a proposal of its own.
func (p Proposal) Off() []string {
	var off []Decision
	for _, decision := range p.Decisions {
		if decision.Goes {
			off = append(off, decision)
		}
	}
	slices.SortStableFunc(off, func(a, b Decision) int {
		return cmp.Or(len(a.held)-len(b.held), len(a.Takes)-len(b.Takes), strings.Compare(firstObject(a), firstObject(b)))
	})
	symbols := make([]string, len(off))
	for i, decision := range off {
		symbols[i] = decision.Symbol
	}
	return symbols
}

// Needs says for each option that goes which others have to go for it.
func (p Proposal) Needs() map[string][]string {
	goes := map[string]bool{}
	for _, decision := range p.Decisions {
		goes[decision.Symbol] = decision.Goes
	}
	needs := map[string][]string{}
	for _, decision := range p.Decisions {
		for _, other := range slices.Concat(decision.Takes, decision.held) {
			if goes[decision.Symbol] && goes[other] {
				needs[decision.Symbol] = append(needs[decision.Symbol], other)
			}
		}
	}
	return needs
}

func firstObject(d Decision) string {
	if len(d.Objects) == 0 {
		return ""
	}
	return d.Objects[0]
}

// Propose decides on each option by itself first. An option that others
// select can only go with them: it joins when all of them go.
func Propose(facts Facts) Proposal {
	facts.Asked = facts.Kconfig.Calibrated(facts.Config, facts.Asked)
	var proposal Proposal
	var off []string
	waiting := map[string]int{}
	for _, symbol := range kconfig.SwitchedOff(facts.Config, nil) {
		decision, settable := facts.judge(symbol)
		if !settable {
			continue
		}
		if by := facts.Kconfig.Selectors(symbol, facts.Config); !decision.Goes && len(by) > 0 && decision.Reason == "" {
			decision.Reason = "selected by " + strings.Join(by, ", ")
			waiting[symbol] = len(proposal.Decisions)
		}
		if decision.Goes {
			off = append(off, symbol)
		}
		proposal.Decisions = append(proposal.Decisions, decision)
	}
	facts.join(&proposal, off, waiting)
	return proposal
}

// join lets in what was only held by options that go.
func (f Facts) join(proposal *Proposal, off []string, waiting map[string]int) {
	for changed := true; changed; {
		changed = false
		before := f.Kconfig.Without(f.Config, off, f.Asked)
		for _, symbol := range slices.Sorted(maps.Keys(waiting)) {
			after := f.Kconfig.Without(f.Config, append(slices.Clone(off), symbol), f.Asked)
			if after.On(symbol) {
				continue
			}
			place := waiting[symbol]
			delete(waiting, symbol)
			changed = true
			if !before.On(symbol) {
				// It went with its selectors already.
				proposal.Decisions[place].Reason = "goes with what selects it"
				continue
			}
			decision := f.weigh(symbol, before, after)
			decision.held = f.Kconfig.Selectors(symbol, f.Config)
			proposal.Decisions[place] = decision
			if decision.Goes {
				off = append(off, symbol)
				before = after
			}
		}
	}
}

func (f Facts) judge(name string) (Decision, bool) {
	symbol := f.Kconfig.Symbols[name]
	if symbol == nil || !symbol.Boolean || symbol.Prompt == "" || f.Config[name] != "y" {
		return Decision{}, false
	}
	decision := Decision{Symbol: name, Prompt: symbol.Prompt}
	switch {
	case f.Keep[name] != "":
		decision.Reason = keptPrefix + f.Keep[name]
	case symbol.Choice > 0:
		decision.Reason = "one of a choice: it can be traded for another, not left out"
	default:
		after := f.Kconfig.Without(f.Config, []string{name}, f.Asked)
		if after.On(name) {
			return decision, true // another option selects it
		}
		decision = f.weigh(name, f.Config, after)
	}
	return decision, true
}

// weigh decides by what would go on the way from one configuration to the
// other, for the sake of one option.
func (f Facts) weigh(name string, before, after kconfig.Config) Decision {
	decision := Decision{Symbol: name, Prompt: f.Kconfig.Symbols[name].Prompt}
	for _, lost := range kconfig.SwitchedOff(before, after) {
		if lost == name {
			continue
		}
		decision.Takes = append(decision.Takes, lost)
		if reason := f.Keep[lost]; reason != "" {
			decision.Reason = fmt.Sprintf("%s goes with it, and is kept: %s", lost, reason)
			return decision
		}
		if other := f.Kconfig.Traded(lost, after); other != "" {
			decision.Reason = fmt.Sprintf("%s would be traded for %s", lost, other)
			return decision
		}
	}
	gone := f.gone(before, after)
	for _, use := range gone {
		if why := use.tooWarm(); why != "" {
			decision.Reason = why
			return decision
		}
		if use.Coverage != NoCode {
			decision.Objects = append(decision.Objects, use.Object)
			decision.Code += use.Code()
		}
	}
	if decision.Code == 0 {
		decision.CodeLess = true
		decision.Reason = "no object of its own: a trace cannot say whether it is used"
		return decision
	}
	decision.Goes = true
	decision.Reason = f.coldness(decision, gone)
	return decision
}

// gone are the objects of the kernel that one configuration builds and the
// other does not, the largest first.
func (f Facts) gone(before, after kconfig.Config) []Use {
	var gone []Use
	for _, use := range f.Uses.sorted() {
		was, known := f.Kbuild.Built(use.Object, before)
		is, _ := f.Kbuild.Built(use.Object, after)
		if known && was && !is {
			gone = append(gone, use)
		}
	}
	return gone
}

// tooWarm says why an object has to stay; empty where it may go.
func (u Use) tooWarm() string {
	switch {
	case u.Coverage <= Warmest:
		return ""
	case u.Seen != "":
		return u.Object + " was used by a job, " + u.Seen
	}
	return fmt.Sprintf("%s ran: %d of %d bytes", u.Object, u.Ran, u.Text)
}

func (f Facts) coldness(decision Decision, gone []Use) string {
	warmest := Cold
	for _, use := range gone {
		warmest = max(warmest, use.Coverage)
	}
	what := map[Coverage]string{
		Cold:    "none of it ran",
		Started: "it was started at boot and never used",
		Warm:    "the workload did not use it",
	}[warmest]
	return fmt.Sprintf("%s, %s of code: %s", objects(len(decision.Objects)), bytesOf(decision.Code), what)
}

func objects(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

func bytesOf(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/1024)
}

// word is one word of a list, and what must hold for it to be there.
type word struct {
	text string
	gate Gate
}

// expander writes out the lists of one makefile.
type expander struct {
	makefile makefile
	// open are the lists being written out, since make allows a list to name
	// itself only in ways that do not concern us.
	open   map[string]bool
	unread []string
}

// words of a list, each with its conditions.
func (e *expander) list(name string) []word {
	if e.open[name] {
		return nil
	}
	e.open[name] = true
	defer delete(e.open, name)
	var all []word
	for _, added := range e.makefile.lists[name] {
		all = append(all, e.text(added.text, added.gate)...)
	}
	return all
}

func (e *expander) text(text string, gate Gate) []word {
	var all []word
	for _, part := range splitWords(text) {
		all = append(all, e.word(part, gate)...)
	}
	return all
}

func (e *expander) word(part string, gate Gate) []word {
	if !strings.Contains(part, "$") {
		return []word{{text: part, gate: gate}}
	}
	if inner, whole := wholeReference(part); whole {
		return e.reference(part, inner, gate)
	}
	plain := part
	for name, value := range kconfig.Constants {
		plain = strings.ReplaceAll(plain, "$("+name+")", value)
	}
	if strings.Contains(plain, "$") {
		e.unread = append(e.unread, part)
		return nil
	}
	return []word{{text: plain, gate: gate}}
}

func (e *expander) reference(part, inner string, gate Gate) []word {
	function, arguments := kconfig.CutWord(inner)
	if function == "addprefix" {
		prefix, list, ok := strings.Cut(arguments, ",")
		if !ok || strings.Contains(prefix, "$") {
			e.unread = append(e.unread, part)
			return nil
		}
		words := e.text(list, gate)
		for i := range words {
			words[i].text = strings.TrimSpace(prefix) + words[i].text
		}
		return words
	}
	if value, known := kconfig.Constants[inner]; known {
		return []word{{text: value, gate: gate}}
	}
	name, own := listName(inner)
	if _, defined := e.makefile.lists[name]; !defined {
		e.unread = append(e.unread, part)
		return nil
	}
	words := e.list(name)
	for i := range words {
		words[i].gate = gate.and(own).and(words[i].gate)
	}
	return words
}

// wholeReference is the inside of a word that is one $(...).
func wholeReference(part string) (string, bool) {
	if !strings.HasPrefix(part, "$(") || !strings.HasSuffix(part, ")") {
		return "", false
	}
	depth := 0
	for i := 1; i < len(part); i++ {
		switch part[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 && i < len(part)-1 {
				return "", false
			}
		}
	}
	return part[2 : len(part)-1], true
}

// splitWords parts a text by blanks outside of references.
func splitWords(text string) []string {
	return slices.DeleteFunc(outside(text, " \t"), func(part string) bool { return part == "" })
}
