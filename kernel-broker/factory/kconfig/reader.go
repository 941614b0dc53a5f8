// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Tree is what the Kconfig files of a source say of each symbol, as far as it takes to
// see which options hang together. It is no solver: kconfig itself has the
// last word on every proposal.
type Tree struct {
	Symbols map[string]*Symbol
	// selectors lists for each symbol who selects it.
	selectors map[string][]selection
	// implied is the same for the weaker "imply".
	implied map[string][]selection
	// members of each choice; that of number 0 has none.
	members [][]string
}

type Symbol struct {
	Name string
	// Where the first definition stands, as file:line.
	Where string
	// Boolean is true for bool and tristate symbols.
	Boolean bool
	// Prompt is the line in menus, "" if users cannot set the symbol.
	Prompt string
	// Choice is the number of the choice that the symbol is a member of, 0 for
	// none. A member cannot be switched off, only Traded for another.
	Choice      int
	definitions []definition
}

type definition struct {
	conditions []condition
	defaults   []fallback
	// prompt says when a user can set the symbol; nil: never.
	prompt expression
}

// fallback is a "default ... if ..." line.
type fallback struct {
	value expression
	when  expression
}

// selection is a "select ... if ..." line, seen from the symbol selected.
type selection struct {
	by   string
	when expression
}

// Read reads a kernel tree's Kconfig files in the order in which they
// include each other, so that an "if" around an include counts for it.
func Read(tree fs.FS) (*Tree, error) {
	reader := kconfigReader{
		tree: tree,
		kconfig: &Tree{
			Symbols: map[string]*Symbol{}, selectors: map[string][]selection{}, implied: map[string][]selection{},
			members: make([][]string, 1),
		},
	}
	if err := reader.file("Kconfig"); err != nil {
		return nil, err
	}
	if len(reader.kconfig.Symbols) == 0 {
		return nil, errors.New("kconfig files: no symbol in them")
	}
	return reader.kconfig, nil
}

// kconfigReader follows the files: the blocks it is in, and the entry.
type kconfigReader struct {
	tree    fs.FS
	kconfig *Tree
	blocks  []kconfigBlock
	entry   *Symbol
	// header is true right behind the line that opens a block, where the
	// block's own conditions stand. Those of a comment stand elsewhere.
	header bool
	help   helpText
	depth  int
}

// kconfigBlock is an "if", a "menu" or a "choice" that is not closed yet; only
// the last has a number.
type kconfigBlock struct {
	conditions []condition
	choice     int
}

func (r *kconfigReader) file(name string) error {
	if r.depth++; r.depth > deepest {
		return fmt.Errorf("kconfig file %q: included too deeply", name)
	}
	defer func() { r.depth-- }()
	data, err := fs.ReadFile(r.tree, name)
	if err != nil {
		return fmt.Errorf("kconfig file %q: %w", name, err)
	}
	number, first := 0, 0
	joined := ""
	for line := range strings.Lines(string(data)) {
		number++
		if joined == "" {
			first = number
		}
		line = strings.TrimRight(line, "\r\n")
		if before, continued := strings.CutSuffix(line, `\`); continued {
			joined += before
			continue
		}
		if err := r.line(fmt.Sprintf("%s:%d", name, first), joined+line); err != nil {
			return err
		}
		joined = ""
	}
	return nil
}

func (r *kconfigReader) line(where, text string) error {
	keyword, rest := CutWord(strings.TrimSpace(text))
	if keyword == "" || r.help.holds(text) || strings.HasPrefix(keyword, "#") {
		return nil
	}
	switch keyword {
	case "help", "---help---":
		r.help = helpText{open: true}
	case "config", "menuconfig":
		r.define(rest, where)
	case "if", "menu", "choice":
		r.open(where, keyword, rest)
	case "endif", "endmenu", "endchoice":
		r.close()
	case "source":
		return r.include(rest)
	case "comment", "mainmenu":
		r.entry, r.header = nil, false
	default:
		r.attribute(where, keyword, rest)
	}
	return nil
}

func (r *kconfigReader) include(rest string) error {
	r.entry, r.header = nil, false
	name := strings.Trim(rest, `"' `)
	for variable, value := range Constants {
		name = strings.ReplaceAll(name, "$("+variable+")", value)
	}
	if strings.Contains(name, "$") {
		return nil // chosen outside of the tree
	}
	return r.file(path.Clean(name))
}

func (r *kconfigReader) open(where, kind, rest string) {
	var block kconfigBlock
	switch kind {
	case "if":
		block.conditions = []condition{{readExpression(rest), rest, where}}
	case "choice":
		block.choice = len(r.kconfig.members)
		r.kconfig.members = append(r.kconfig.members, nil)
	}
	r.blocks = append(r.blocks, block)
	r.entry, r.header = nil, true
}

func (r *kconfigReader) close() {
	if len(r.blocks) > 0 {
		r.blocks = r.blocks[:len(r.blocks)-1]
	}
	r.entry, r.header = nil, false
}

func (r *kconfigReader) define(name, where string) {
	name = strings.TrimSpace(name)
	if name == "" {
		return
	}
	symbol := r.kconfig.Symbols[name]
	if symbol == nil {
		symbol = &Symbol{Name: name, Where: where}
		r.kconfig.Symbols[name] = symbol
	}
	var around []condition
	for _, block := range r.blocks {
		around = append(around, block.conditions...)
		if block.choice > 0 {
			symbol.Choice = block.choice
			r.kconfig.members[block.choice] = append(r.kconfig.members[block.choice], name)
		}
	}
	symbol.definitions = append(symbol.definitions, definition{conditions: around})
	r.entry = symbol
}

// helpText is over at the first line that is indented less than its first one.
type helpText struct {
	open   bool
	indent int
}

func (h *helpText) holds(line string) bool {
	if !h.open {
		return false
	}
	width := 0
	for _, c := range line {
		if c == '\t' {
			width = width&^7 + 8
		} else if c == ' ' {
			width++
		} else {
			break
		}
	}
	if h.indent == 0 {
		h.indent = width
	}
	h.open = width > 0 && width >= h.indent
	return h.open
}

// Defines reports whether a file defines the symbol, or one that the pattern
// matches.
func (k *Tree) Defines(pattern string) bool {
	if k.Symbols[pattern] != nil || !strings.Contains(pattern, "*") {
		return k.Symbols[pattern] != nil
	}
	for name := range k.Symbols {
		if matched, err := path.Match(pattern, name); err == nil && matched {
			return true
		}
	}
	return false
}

// Unmet lists the conditions of the symbol that do not hold, of the first
// definition with the fewest of them.
func (k *Tree) Unmet(name string, config Config) []string {
	symbol := k.Symbols[name]
	if symbol == nil {
		return nil
	}
	unmet := []string{}
	for _, c := range symbol.unmet(config) {
		unmet = append(unmet, fmt.Sprintf("depends on %s (%s)", c.text, c.where))
	}
	return unmet
}

func (s *Symbol) unmet(config Config) []condition {
	var best []condition
	for i, definition := range s.definitions {
		unmet := slices.DeleteFunc(slices.Clone(definition.conditions), func(c condition) bool { return c.holds(config) })
		if i == 0 || len(unmet) < len(best) {
			best = unmet
		}
	}
	return best
}

// Constants are the variables of make that have one value in every build of
// the factory.
var Constants = map[string]string{
	"ARCH": "x86_64", "SRCARCH": "x86", "BITS": "64", "obj": ".", "src": ".", "UTS_MACHINE": "x86_64",
}

// deepest is more folders than any path of the kernel has; it ends a loop of
// files that include each other.
const deepest = 24

// CutWord parts a line at the end of its first word.
func CutWord(line string) (word, rest string) {
	end := strings.IndexAny(line, " \t(")
	if end < 0 {
		return line, ""
	}
	return line[:end], strings.TrimSpace(line[end:])
}

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
