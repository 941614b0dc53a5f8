// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Need is a condition on a configuration: one of the symbols is built in, or,
// with Not, none of them is. Without a symbol it never holds.
type Need struct {
	Any []string
	// Modular says that a module is enough.
	Modular bool
	Not     bool
}

func (n Need) holds(config kconfig.Config) bool {
	return n.Not != slices.ContainsFunc(n.Any, func(symbol string) bool {
		return config[symbol] == "y" || n.Modular && config[symbol] == "m"
	})
}

func (n Need) negated() Need {
	n.Not = !n.Not
	return n
}

// String is the condition in short form.
func (n Need) String() string {
	text := strings.Join(n.Any, "|")
	if n.Not {
		return "!" + text
	}
	return text
}

// Gate is all that must hold for a line of a makefile to count: the line's own
// option, the conditionals around it, and the same of each folder above.
type Gate []Need

func (g Gate) holds(config kconfig.Config) bool {
	for _, need := range g {
		if !need.holds(config) {
			return false
		}
	}
	return true
}

// and makes a new gate that needs what both need.
func (g Gate) and(more Gate) Gate {
	all := slices.Clone(g)
	for _, need := range more {
		if !slices.ContainsFunc(all, func(n Need) bool { return n.String() == need.String() && n.Modular == need.Modular }) {
			all = append(all, need)
		}
	}
	return all
}

// String joins the conditions.
func (g Gate) String() string {
	texts := make([]string, len(g))
	for i, need := range g {
		texts[i] = need.String()
	}
	return strings.Join(texts, " && ")
}

// Gates are the alternatives of one object: any of them builds it.
type Gates []Gate

func (g Gates) hold(config kconfig.Config) bool {
	return slices.ContainsFunc(g, func(gate Gate) bool { return gate.holds(config) })
}

func (g Gates) with(gate Gate) Gates {
	text := gate.String()
	if slices.ContainsFunc(g, func(other Gate) bool { return other.String() == text }) {
		return g
	}
	return append(g, gate)
}
