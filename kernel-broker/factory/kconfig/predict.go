// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// settable reports whether a user can set the symbol in this
// configuration.
func (s *Symbol) settable(config Config) bool {
	return slices.ContainsFunc(s.definitions, func(d definition) bool {
		return d.prompt != nil && d.prompt(config) && d.possible(config)
	})
}

func (d definition) possible(config Config) bool {
	return !slices.ContainsFunc(d.conditions, func(c condition) bool { return !c.holds(config) })
}

// byDefault reports whether a default switches the symbol on.
func (s *Symbol) byDefault(config Config) bool {
	return slices.ContainsFunc(s.definitions, func(d definition) bool {
		return d.possible(config) && slices.ContainsFunc(d.defaults, func(f fallback) bool {
			return f.when(config) && f.value(config)
		})
	})
}

// Selectors are the options that are on and hold the symbol on.
func (k *Tree) Selectors(symbol string, config Config) []string {
	return active(k.selectors[symbol], config)
}

func active(selections []selection, config Config) []string {
	var by []string
	for _, selection := range selections {
		if config.On(selection.by) && selection.when(config) && !slices.Contains(by, selection.by) {
			by = append(by, selection.by)
		}
	}
	slices.Sort(by)
	return by
}

// Without predicts the configuration with some options off: what depends on
// them goes too, and what only they selected. The options asked for by the
// recipe stay on where they can; with nil everything settable counts as asked
// for. A selected symbol stays on even when it was to go.
func (k *Tree) Without(config Config, off []string, asked map[string]bool) Config {
	after := maps.Clone(config)
	unwanted := map[string]bool{}
	for _, symbol := range off {
		unwanted[symbol] = true
	}
	on := SwitchedOff(config, nil)
	for changed := true; changed; {
		changed = false
		for _, symbol := range on {
			if after.On(symbol) && !k.staysOn(symbol, after, unwanted, asked) {
				after[symbol] = "n"
				changed = true
			}
		}
	}
	return after
}

// Calibrated adds to the options asked for what the prediction would lose with
// nothing off: the base configuration asked for it, or a default that this
// package does not follow gave it. Then the kernel as it is predicts itself.
func (k *Tree) Calibrated(config Config, asked map[string]bool) map[string]bool {
	if asked == nil {
		return nil
	}
	all := maps.Clone(asked)
	for {
		lost := SwitchedOff(config, k.Without(config, nil, all))
		before := len(all)
		for _, symbol := range lost {
			all[symbol] = true
		}
		if len(all) == before {
			return all
		}
	}
}

func (k *Tree) staysOn(name string, config Config, unwanted, asked map[string]bool) bool {
	symbol := k.Symbols[name]
	if symbol == nil || !symbol.Boolean {
		return !unwanted[name]
	}
	if len(k.Selectors(name, config)) > 0 {
		return true
	}
	if unwanted[name] || !slices.ContainsFunc(symbol.definitions, func(d definition) bool { return d.possible(config) }) {
		return false
	}
	if symbol.settable(config) {
		return asked == nil || asked[name] || symbol.Choice > 0
	}
	return symbol.byDefault(config) || len(active(k.implied[name], config)) > 0
}

// Traded names the member of a choice that takes the place of one that is
// lost. A choice that goes as a whole trades nothing.
func (k *Tree) Traded(lost string, after Config) (other string) {
	symbol := k.Symbols[lost]
	if symbol == nil {
		return ""
	}
	for _, member := range k.members[symbol.Choice] {
		if member != lost && k.Symbols[member].settable(after) {
			return member
		}
	}
	return ""
}

// SwitchedOff are the symbols that are on before and not after, in order.
func SwitchedOff(before, after Config) []string {
	var lost []string
	for symbol := range before {
		if before.On(symbol) && !after.On(symbol) {
			lost = append(lost, symbol)
		}
	}
	slices.Sort(lost)
	return lost
}

// Enabling finds what must be asked for so that options are on.
type Enabling struct {
	tree *Tree
	// Config is the configuration so far, with what was enabled.
	Config   Config
	booleans []*Symbol
}

// Enabling begins with a configuration. It may be what recipes ask for alone:
// what follows from that is added.
func (k *Tree) Enabling(config Config) *Enabling {
	e := &Enabling{tree: k, Config: maps.Clone(config)}
	for _, name := range slices.Sorted(maps.Keys(k.Symbols)) {
		if symbol := k.Symbols[name]; symbol.Boolean {
			e.booleans = append(e.booleans, symbol)
		}
	}
	e.follow(false) // first, what makes prompts visible
	e.follow(true)
	return e
}

// follow switches on what is selected, and what has no prompt and is on by
// default. An option with a prompt may get visible later, and then it is off
// unless it is asked for; unseen takes it as it is.
func (e *Enabling) follow(unseen bool) {
	for changed := true; changed; {
		changed = false
		for _, symbol := range e.booleans {
			if e.Config.On(symbol.Name) {
				continue
			}
			if len(e.tree.Selectors(symbol.Name, e.Config)) > 0 || (symbol.Prompt == "" || unseen && !symbol.settable(e.Config)) && symbol.byDefault(e.Config) {
				e.Config[symbol.Name] = "y"
				changed = true
			}
		}
	}
}

// Enable switches an option on, and before it what it depends on. It returns the
// options to ask for. Where no list of options is sure to do, the error says what
// is unmet, and nothing is enabled.
func (e *Enabling) Enable(name string) ([]string, error) {
	before := maps.Clone(e.Config)
	asked, err := e.enable(name, map[string]bool{})
	if err != nil {
		e.Config = before
		return nil, err
	}
	slices.Sort(asked)
	return slices.Compact(asked), nil
}

func (e *Enabling) enable(name string, open map[string]bool) ([]string, error) {
	symbol := e.tree.Symbols[name]
	switch {
	case e.Config.On(name):
		return nil, nil
	case symbol == nil:
		return nil, fmt.Errorf("no Kconfig file of this source defines %s", name)
	case !symbol.Boolean:
		return nil, fmt.Errorf("%s is a number or a text", name)
	case open[name]:
		return nil, fmt.Errorf("%s depends on itself", name)
	}
	open[name] = true
	defer delete(open, name)
	var asked []string
	for _, needed := range symbol.needs(e.Config) {
		more, err := e.enable(needed, open)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		asked = append(asked, more...)
	}
	switch {
	case e.Config.On(name): // what it needs switched it on
		return asked, nil
	case symbol.settable(e.Config):
		e.Config[name] = "y"
		e.follow(false)
		return append(asked, name), nil
	}
	if symbol.byDefault(e.Config) {
		e.Config[name] = "y"
		e.follow(false)
		return asked, nil
	}
	if unmet := e.tree.Unmet(name, e.Config); len(unmet) > 0 {
		return nil, fmt.Errorf("%s: unmet: %s", name, strings.Join(unmet, "; "))
	}
	return nil, fmt.Errorf("%s: only another option can select it (%s)", name, symbol.Where)
}

// needs are the options that the symbol's first definition with the fewest unmet
// conditions needs for certain: those that each condition joins by "&&" alone.
func (s *Symbol) needs(config Config) []string {
	var needs []string
	for _, condition := range s.unmet(config) {
		tokens := words.FindAllString(condition.text, -1)
		if slices.ContainsFunc(tokens, func(t string) bool { return t != "&&" && strings.ContainsAny(t, `!=<>()|$&"'`) }) {
			continue // Unmet tells of it if it does not hold in the end
		}
		needs = append(needs, slices.DeleteFunc(tokens, func(t string) bool { return t == "&&" || t == "y" || t == "m" })...)
	}
	return needs
}

// CanAsk reports whether the option is on and may stand in a fragment; others
// follow from their selectors and defaults.
func (e *Enabling) CanAsk(name string) bool {
	symbol := e.tree.Symbols[name]
	return symbol != nil && e.Config.On(name) && symbol.settable(e.Config)
}
