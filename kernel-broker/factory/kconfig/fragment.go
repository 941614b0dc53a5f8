// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Off is the value of an option that a fragment Asks to be off.
const Off = "n"

// Option is one line of a fragment: a symbol, without CONFIG_, and its value
// as .config writes it ("y", "m", "n", a number, or a quoted string).
type Option struct {
	Symbol string
	Value  string
	File   string
	Line   int
}

// Where the option stands, as file:line.
func (o Option) Where() string { return fmt.Sprintf("%s:%d", o.File, o.Line) }

// String is the line as .config writes it.
func (o Option) String() string { return Line(o.Symbol, o.Value) }

// Fragment is a file of options, in groups that each begin with the reason.
type Fragment struct {
	Name    string
	Digest  string
	Options []Option
}

// ReadFragment reads and checks a fragment file.
func ReadFragment(path string) (Fragment, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Fragment{}, fmt.Errorf("fragment: %w", err)
	}
	return ParseFragment(path, data)
}

// ParseFragment checks the form as well as the content: groups are parted by
// blank lines, each has its reason in a comment on top and its options sorted
// by symbol, so that concurrent changes of a fragment conflict in the same line.
func ParseFragment(path string, data []byte) (Fragment, error) {
	fragment := Fragment{
		Name:   strings.TrimSuffix(filepath.Base(path), ".config"),
		Digest: digest.Of(data),
	}
	seen := map[string]int{}
	var group fragmentGroup
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		option, err := group.line(strings.TrimRight(lines.Text(), blanks))
		if err != nil {
			return Fragment{}, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if option == nil {
			continue
		}
		if first, twice := seen[option.Symbol]; twice {
			return Fragment{}, fmt.Errorf("%s:%d: CONFIG_%s is already set in line %d", path, n, option.Symbol, first)
		}
		seen[option.Symbol] = n
		option.File, option.Line = path, n
		fragment.Options = append(fragment.Options, *option)
	}
	if err := lines.Err(); err != nil {
		return Fragment{}, fmt.Errorf("%s: %w", path, err)
	}
	if len(fragment.Options) == 0 {
		return Fragment{}, fmt.Errorf("%s: no option in it", path)
	}
	return fragment, nil
}

// fragmentGroup follows the lines between two blank ones.
type fragmentGroup struct {
	reason bool
	last   string
}

func (g *fragmentGroup) line(text string) (*Option, error) {
	if text == "" {
		*g = fragmentGroup{}
		return nil, nil
	}
	option, err := parseOption(text)
	if err != nil {
		return nil, err
	}
	if option == nil {
		if g.last != "" {
			return nil, fmt.Errorf("comment in the middle of a group: begin a new one with a blank line")
		}
		g.reason = true
		return nil, nil
	}
	if !g.reason {
		return nil, fmt.Errorf("CONFIG_%s stands in a group without a comment that gives the reason", option.Symbol)
	}
	if option.Symbol < g.last {
		return nil, fmt.Errorf("CONFIG_%s stands after CONFIG_%s: options are sorted within their group", option.Symbol, g.last)
	}
	g.last = option.Symbol
	return option, nil
}

// nearlyOff is a line that was to switch an option off and would do nothing.
var nearlyOff = regexp.MustCompile(`(?i)^#\s*CONFIG_\w+\s+is\s+not\s+set\b`)

// parseOption returns nil for a comment.
func parseOption(text string) (*Option, error) {
	if rest, ok := strings.CutPrefix(text, "# CONFIG_"); ok {
		if symbol, off := strings.CutSuffix(rest, " is not set"); off {
			return &Option{Symbol: symbol, Value: Off}, validSymbol(symbol)
		}
	}
	if strings.HasPrefix(text, "#") {
		if nearlyOff.MatchString(text) {
			return nil, fmt.Errorf("%q is a comment for kconfig: write \"# CONFIG_NAME is not set\", with nothing before or behind it", text)
		}
		return nil, nil
	}
	rest, ok := strings.CutPrefix(text, "CONFIG_")
	symbol, value, set := strings.Cut(rest, "=")
	if !ok || !set {
		return nil, fmt.Errorf("%q is neither CONFIG_NAME=value, \"# CONFIG_NAME is not set\", a comment nor blank", text)
	}
	if err := validSymbol(symbol); err != nil {
		return nil, err
	}
	if err := validValue(value); err != nil {
		return nil, fmt.Errorf("CONFIG_%s: %w", symbol, err)
	}
	return &Option{Symbol: symbol, Value: value}, nil
}

func validSymbol(symbol string) error {
	for i := range len(symbol) {
		c := symbol[i]
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("CONFIG_%s: character %q in the name", symbol, c)
		}
	}
	if symbol == "" {
		return fmt.Errorf("CONFIG_ without a name")
	}
	return nil
}

// number as kconfig has them: decimal, or up to 64 bits in hex.
var number = regexp.MustCompile(`^(-?[0-9]{1,19}|0[xX][0-9a-fA-F]{1,16})$`)

func validValue(value string) error {
	switch {
	case value == "y" || value == "m":
		return nil
	case value == Off:
		return fmt.Errorf("value n: write \"# CONFIG_... is not set\"")
	case strings.HasPrefix(value, `"`):
		inner, closed := strings.CutSuffix(value[1:], `"`)
		if len(value) < 2 || !closed || strings.ContainsAny(inner, "\"\\") {
			return fmt.Errorf("string %s is not closed or has quotes or backslashes in it", value)
		}
		return nil
	}
	if !number.MatchString(value) {
		return fmt.Errorf("value %q is not y, m, a number or a quoted string", value)
	}
	return nil
}

// Line of a .config file.
func Line(symbol, value string) string {
	if value == Off {
		return "# CONFIG_" + symbol + " is not set"
	}
	return "CONFIG_" + symbol + "=" + value
}

// Merged is what several fragments ask for together, in the order of symbols.
type Merged struct {
	Options []Option
}

// ContradictionError names pairs of lines that ask for different values of a symbol.
type ContradictionError struct{ pairs []error }

func (e *ContradictionError) Error() string { return errors.Join(e.pairs...).Error() }

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
	if len(conflicts) > 0 {
		return Merged{}, &ContradictionError{conflicts}
	}
	return Merged{slices.SortedFunc(maps.Values(first), bySymbol)}, nil
}

func bySymbol(a, b Option) int { return strings.Compare(a.Symbol, b.Symbol) }

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
