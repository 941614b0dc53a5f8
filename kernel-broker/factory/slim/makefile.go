// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"regexp"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// makefile is one Kbuild file: for each list (obj-..., foo-objs, a plain
// variable), what is added to it and under which conditions. Nothing of it
// depends on a configuration.
type makefile struct {
	lists map[string][]addition
}

type addition struct {
	text string // not expanded yet
	gate Gate
}

var assignment = regexp.MustCompile(
	`^\s*(?:override\s+|export\s+)?((?:[A-Za-z0-9_.+-]|\$\([^()]*(?:\([^()]*\)[^()]*)*\))+)\s*(?::{0,3}|\+|\?)=(.*)$`)

func parseMakefile(data string) makefile {
	parsed := makefile{lists: map[string][]addition{}}
	var blocks conditionals
	define := false
	for _, line := range logicalLines(data) {
		trimmed := strings.TrimSpace(line)
		word, rest := kconfig.CutWord(trimmed)
		switch {
		case word == "define":
			define = true
		case word == "endef":
			define = false
		case define || blocks.line(word, rest):
		default:
			parsed.assign(line, blocks.gate())
		}
	}
	return parsed
}

func (m makefile) assign(line string, around Gate) {
	match := assignment.FindStringSubmatch(line)
	if match == nil {
		return
	}
	list, own := listName(match[1])
	if list == "" {
		return
	}
	m.lists[list] = append(m.lists[list], addition{text: match[2], gate: around.and(own)})
}

// listName splits "obj-$(CONFIG_X)" into its list and the condition. A list
// for modules only has no name here; a variable without such an ending keeps
// its own, behind an equals sign so that the two kinds cannot meet.
func listName(name string) (string, Gate) {
	parts := outside(name, "-")
	ending := parts[len(parts)-1]
	base := strings.TrimSuffix(name, "-"+ending)
	if len(parts) == 1 || base == "" {
		return "=" + name, nil
	}
	switch {
	case ending == "m":
		return "", nil
	case ending == "objs":
		return base, nil
	case strings.Trim(ending, "y") == "" && ending != "", strings.HasPrefix(strings.TrimLeft(ending, "y"), "$("):
		return base, endingNeeds(ending)
	}
	return "=" + name, nil
}

var configName = regexp.MustCompile(`CONFIG_([A-Za-z0-9_]+)`)

// endingNeeds reads the options in a list's ending: all of them must be on.
// "subst m,y" and ":m=y" build in what is configured as a module.
func endingNeeds(ending string) Gate {
	modular := strings.Contains(ending, "subst m,y") || strings.Contains(ending, ":m=y")
	var gate Gate
	for _, match := range configName.FindAllStringSubmatch(ending, -1) {
		gate = gate.and(Gate{{Any: []string{match[1]}, Modular: modular}})
	}
	return gate
}

// logicalLines joins continued lines and drops comments.
func logicalLines(data string) []string {
	var lines []string
	var joined strings.Builder
	for line := range strings.Lines(data) {
		line = strings.TrimRight(line, "\r\n")
		if before, continued := strings.CutSuffix(line, `\`); continued {
			joined.WriteString(before)
			joined.WriteByte(' ')
			continue
		}
		joined.WriteString(line)
		lines = append(lines, withoutComment(joined.String()))
		joined.Reset()
	}
	if joined.Len() > 0 {
		lines = append(lines, withoutComment(joined.String()))
	}
	return lines
}

func withoutComment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] != '\\') {
			return line[:i]
		}
	}
	return line
}
