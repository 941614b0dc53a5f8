// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Merged is what several fragments ask for together, in the order of symbols.
type Merged struct {
	Options []Option
}

// Merge joins fragments. The order of fragments has no meaning: two of them
// that ask for different values of a symbol contradict each other, and each
// such pair is named.
func Merge(fragments []Fragment) (Merged, error) {
	first := map[string]Option{}
	var conflicts []error
	for _, fragment := range fragments {
		for _, option := range fragment.Options {
			earlier, seen := first[option.Symbol]
			if !seen {
				first[option.Symbol] = option
				continue
			}
			if earlier.Value != option.Value {
				conflicts = append(conflicts, fmt.Errorf("%s: %s contradicts %s: %s",
					option.Where(), option, earlier.Where(), earlier))
			}
		}
	}
	if err := errors.Join(conflicts...); err != nil {
		return Merged{}, err
	}
	return Merged{slices.SortedFunc(maps.Values(first), bySymbol)}, nil
}

func bySymbol(a, b Option) int { return strings.Compare(a.Symbol, b.Symbol) }

// Sets reports whether one of the options is the symbol.
func (m Merged) Sets(symbol string) bool {
	_, found := slices.BinarySearchFunc(m.Options, Option{Symbol: symbol}, bySymbol)
	return found
}

// Asks reports whether the options switch the symbol on.
func (m Merged) Asks(symbol string) bool {
	return slices.ContainsFunc(m.Options, func(o Option) bool { return o.Symbol == symbol && o.Value == "y" })
}

// Over lays the options over a base configuration, where they win. Kconfig
// settles a choice (which compression, which allocator) by the last line that
// names a member, so the options come after all of the base.
func (m Merged) Over(base Config) string {
	rest := Config{}
	for symbol, value := range base {
		if !m.Sets(symbol) {
			rest[symbol] = value
		}
	}
	return rest.Text() + m.Text()
}

// Text of the options as a .config file has them, without their origin, so
// that moving a line to another fragment does not make another kernel.
func (m Merged) Text() string {
	var text strings.Builder
	for _, option := range m.Options {
		text.WriteString(option.String())
		text.WriteByte('\n')
	}
	return text.String()
}

// Overlaid replaces options by those of the overlays, of which two may not
// contradict each other.
func (m Merged) Overlaid(overlays ...Fragment) (Merged, error) {
	if len(overlays) == 0 {
		return m, nil
	}
	top, err := Merge(overlays)
	if err != nil {
		return Merged{}, fmt.Errorf("overlays contradict each other:\n%w", err)
	}
	all := top
	for _, option := range m.Options {
		if !top.Sets(option.Symbol) {
			all.Options = append(all.Options, option)
		}
	}
	slices.SortFunc(all.Options, bySymbol)
	return all, nil
}
