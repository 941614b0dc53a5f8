// SPDX-License-Identifier: Apache-2.0

package kconfig

import "strings"

// attribute reads a line inside an entry, a menu or a choice.
func (r *kconfigReader) attribute(where, keyword, rest string) {
	if keyword == "depends" {
		text := strings.Join(strings.Fields(strings.TrimPrefix(rest, "on")), " ")
		condition := condition{readExpression(text), text, where}
		if r.entry != nil {
			last := r.last()
			last.conditions = append(last.conditions, condition)
		} else if r.header && len(r.blocks) > 0 {
			block := &r.blocks[len(r.blocks)-1]
			block.conditions = append(block.conditions, condition)
		}
		return
	}
	if r.entry == nil {
		return
	}
	value, when := cutIf(rest)
	switch keyword {
	case "bool", "tristate", "def_bool", "def_tristate":
		r.entry.Boolean = true
		if strings.HasPrefix(keyword, "def_") {
			r.fallback(value, when)
		} else {
			r.prompt(value, when)
		}
	case "int", "hex", "string", "prompt":
		r.prompt(value, when)
	case "default":
		r.fallback(value, when)
	case "select":
		r.kconfig.selectors[value] = append(r.kconfig.selectors[value], selection{by: r.entry.Name, when: when})
	case "imply":
		// It gives a default and nothing more: an implied symbol can be
		// switched off.
		r.kconfig.implied[value] = append(r.kconfig.implied[value], selection{by: r.entry.Name, when: when})
	}
}

func (r *kconfigReader) last() *definition {
	return &r.entry.definitions[len(r.entry.definitions)-1]
}

func (r *kconfigReader) prompt(text string, when expression) {
	text = strings.Trim(text, `"' `)
	if text == "" {
		return
	}
	r.last().prompt = when
	if r.entry.Prompt == "" {
		r.entry.Prompt = text
	}
}

func (r *kconfigReader) fallback(value string, when expression) {
	last := r.last()
	last.defaults = append(last.defaults, fallback{value: readExpression(value), when: when})
}

// cutIf parts "VALUE if CONDITION". Without a condition it holds always.
func cutIf(text string) (string, expression) {
	quoted := false
	for i := range len(text) {
		if text[i] == '"' {
			quoted = !quoted
		}
		if rest, found := strings.CutPrefix(text[i:], "if"); found && !quoted && i > 0 && blank(text[i-1]) && startsCondition(rest) {
			return strings.TrimSpace(text[:i]), readExpression(rest)
		}
	}
	return strings.TrimSpace(text), always
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// startsCondition distinguishes the keyword from a symbol that begins like it.
func startsCondition(rest string) bool {
	return rest != "" && (blank(rest[0]) || rest[0] == '(' || rest[0] == '!')
}
