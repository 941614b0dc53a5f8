// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"regexp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// conditionals follows ifeq, ifdef, else and endif through a makefile.
type conditionals []block

type block struct {
	// now is what the current branch needs, before what earlier branches of
	// the same block needed and did not get.
	now    Gate
	before Gate
}

func (c conditionals) gate() Gate {
	var gate Gate
	for _, block := range c {
		gate = gate.and(block.before).and(block.now)
	}
	return gate
}

// line reports whether the line is part of a conditional.
func (c *conditionals) line(word, rest string) bool {
	switch word {
	case "ifeq", "ifneq", "ifdef", "ifndef":
		*c = append(*c, block{now: condition(word, rest)})
	case "else":
		if len(*c) == 0 {
			return true
		}
		last := &(*c)[len(*c)-1]
		last.before = last.before.and(opposite(last.now))
		last.now = nil
		if inner, condText := kconfig.CutWord(rest); inner != "" {
			last.now = condition(inner, condText)
		}
	case "endif":
		if len(*c) > 0 {
			*c = (*c)[:len(*c)-1]
		}
	default:
		return false
	}
	return true
}

// opposite of a condition. Of several needs it is not one gate, and counts as
// unknown.
func opposite(gate Gate) Gate {
	if len(gate) != 1 {
		return nil
	}
	return Gate{gate[0].negated()}
}

var (
	never  = Need{}
	always = Need{Not: true}
	onlyYs = regexp.MustCompile(`^y+$`)
	// configsOnly is references to options and nothing else.
	configsOnly = regexp.MustCompile(`^(\s*\$[({]CONFIG_[A-Za-z0-9_]+[)}]\s*)+$`)
	filterY     = regexp.MustCompile(`^\$\(filter y *m?,(.*)\)$`)
	reference   = regexp.MustCompile(`^\$\(([A-Za-z0-9_]+)\)$`)
)

// condition reads what a conditional asks of the configuration. What it cannot
// read is no condition: then both branches count, and an object seems to be
// built in more ways than it is, which only ever keeps an option.
func condition(word, text string) Gate {
	negative := word == "ifneq" || word == "ifndef"
	if word == "ifdef" || word == "ifndef" {
		match := configName.FindStringSubmatch(text)
		if match == nil {
			return nil
		}
		return Gate{{Any: []string{match[1]}, Modular: true, Not: negative}}
	}
	left, right, ok := operands(text)
	if !ok {
		return nil
	}
	gate := equals(left, right)
	if negative {
		return opposite(gate)
	}
	return gate
}

func equals(left, right string) Gate {
	if match := reference.FindStringSubmatch(left); match != nil {
		if value, known := kconfig.Constants[match[1]]; known {
			if value == right {
				return Gate{always}
			}
			return Gate{never}
		}
	}
	names := func(text string) []string {
		var found []string
		for _, match := range configName.FindAllStringSubmatch(text, -1) {
			found = append(found, match[1])
		}
		return found
	}
	if match := filterY.FindStringSubmatch(left); match != nil && right == "" && configsOnly.MatchString(match[1]) {
		return Gate{{Any: names(match[1]), Modular: strings.Contains(left, "y m,"), Not: true}}
	}
	if !configsOnly.MatchString(left) {
		return nil
	}
	symbols := names(left)
	if right == "" {
		return Gate{{Any: symbols, Modular: true, Not: true}}
	}
	if !onlyYs.MatchString(right) || len(right) != len(symbols) {
		return nil
	}
	var all Gate
	for _, symbol := range symbols {
		all = all.and(Gate{{Any: []string{symbol}}})
	}
	return all
}

// operands of "(left,right)", parted by the comma that is in no parentheses of
// its own.
func operands(text string) (string, string, bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "(") || !strings.HasSuffix(text, ")") {
		return "", "", false
	}
	parts := outside(text[1:len(text)-1], ",")
	if len(parts) < 2 {
		return "", "", false
	}
	left, right := parts[0], strings.Join(parts[1:], ",")
	return strings.TrimSpace(left), strings.TrimSpace(right), true
}

// outside parts a text at each of the bytes that is in no parentheses.
func outside(text, at string) []string {
	var parts []string
	depth, begin := 0, 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth == 0 && strings.IndexByte(at, c) >= 0:
			parts = append(parts, text[begin:i])
			begin = i + 1
		}
	}
	return append(parts, text[begin:])
}

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
	return !slices.ContainsFunc(g, func(n Need) bool { return !n.holds(config) })
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
