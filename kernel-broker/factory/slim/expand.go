// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

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
