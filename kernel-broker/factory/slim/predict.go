package slim

import (
	"maps"
	"slices"
)

// settable reports whether a person could set the symbol in this
// configuration.
func (s *Symbol) settable(config Config) bool {
	return slices.ContainsFunc(s.definitions, func(d definition) bool {
		return d.prompt != nil && d.prompt.holds(config) && d.possible(config)
	})
}

func (d definition) possible(config Config) bool {
	return allOf(d.conditions).holds(config)
}

// byDefault reports whether a default switches the symbol on.
func (s *Symbol) byDefault(config Config) bool {
	return slices.ContainsFunc(s.definitions, func(d definition) bool {
		return d.possible(config) && slices.ContainsFunc(d.defaults, func(f fallback) bool {
			return f.when.holds(config) && f.value.holds(config)
		})
	})
}

// Selectors are the options that are on and hold the symbol on.
func (k *Kconfig) Selectors(symbol string, config Config) []string {
	return active(k.selectors[symbol], config)
}

func active(selections []selection, config Config) []string {
	var by []string
	for _, selection := range selections {
		if config.on(selection.by) && selection.when.holds(config) && !slices.Contains(by, selection.by) {
			by = append(by, selection.by)
		}
	}
	slices.Sort(by)
	return by
}

// Without predicts the configuration with some options off: what depends on
// them goes too, and what only they selected. The options asked for by the
// recipe stay on where they can; with nil everything settable counts as asked
// for. A symbol that somebody selects stays on even when it was to go.
func (k *Kconfig) Without(config Config, off []string, asked map[string]bool) Config {
	after := maps.Clone(config)
	unwanted := map[string]bool{}
	for _, symbol := range off {
		unwanted[symbol] = true
	}
	on := make([]string, 0, len(config))
	for symbol := range config {
		if config.on(symbol) {
			on = append(on, symbol)
		}
	}
	slices.Sort(on)
	for changed := true; changed; {
		changed = false
		for _, symbol := range on {
			if after.on(symbol) && !k.staysOn(symbol, after, unwanted, asked) {
				after[symbol] = "n"
				changed = true
			}
		}
	}
	return after
}

func (k *Kconfig) staysOn(name string, config Config, unwanted, asked map[string]bool) bool {
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
		return asked == nil || asked[name] || symbol.Choice
	}
	return symbol.byDefault(config) || len(active(k.implied[name], config)) > 0
}

// Lost are the symbols that are on before and not after, in order.
func Lost(before, after Config) []string {
	var lost []string
	for symbol := range before {
		if before.on(symbol) && !after.on(symbol) {
			lost = append(lost, symbol)
		}
	}
	slices.Sort(lost)
	return lost
}
