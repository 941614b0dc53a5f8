// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"maps"
	"slices"
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
