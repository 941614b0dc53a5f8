// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kconfig holds, per symbol, the conditions of its definitions as the Kconfig
// files state them. It is a reading aid for errors, not a solver: it knows
// "depends on" lines and the "if" blocks around a symbol, and leaves out
// menus, selects and ranges.
type Kconfig map[string][]definition

type definition struct {
	where      string
	conditions []condition
}

type condition struct {
	text  string
	where string
}

// Defines reports whether any file defines the symbol.
func (k Kconfig) Defines(symbol string) bool { return len(k[symbol]) > 0 }

// Unmet lists the conditions of the symbol that do not hold, from the first
// definition with the fewest of them.
func (k Kconfig) Unmet(symbol string, config Config) []string {
	var best []string
	for i, definition := range k[symbol] {
		unmet := []string{}
		for _, condition := range definition.conditions {
			if !holds(condition.text, config) {
				unmet = append(unmet, fmt.Sprintf("depends on %s (%s)", condition.text, condition.where))
			}
		}
		if i == 0 || len(unmet) < len(best) {
			best = unmet
		}
	}
	return best
}

// ReadKconfig reads the Kconfig files of a kernel tree that matter on x86.
func ReadKconfig(tree string) (Kconfig, error) {
	kconfig := Kconfig{}
	// The walk does not follow a link, not even where it begins.
	tree, err := filepath.EvalSymlinks(tree)
	if err != nil {
		return nil, fmt.Errorf("kconfig files: %w", err)
	}
	err = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if other, err := filepath.Match("arch/*", relative); err != nil || other && relative != "arch/x86" {
				return filepath.SkipDir
			}
			if relative == "Documentation" || relative == "tools" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasPrefix(entry.Name(), "Kconfig") {
			return nil
		}
		return kconfig.readFile(path, relative)
	})
	if err != nil {
		return nil, fmt.Errorf("kconfig files: %w", err)
	}
	if len(kconfig) == 0 {
		return nil, fmt.Errorf("kconfig files: none below %s", tree)
	}
	return kconfig, nil
}

func (k Kconfig) readFile(path, name string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read from
	reader := kconfigReader{kconfig: k, file: name}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		for strings.HasSuffix(text, "\\") && lines.Scan() {
			text = strings.TrimSuffix(text, "\\") + " " + strings.TrimSpace(lines.Text())
			n++
		}
		reader.line(n, text)
	}
	return lines.Err()
}

// kconfigReader follows one file: which symbol's entry and which "if" blocks
// it is in.
type kconfigReader struct {
	kconfig Kconfig
	file    string
	ifs     []condition
	symbol  string
	help    bool
}

func (r *kconfigReader) line(n int, text string) {
	indented := strings.HasPrefix(text, "\t") || strings.HasPrefix(text, " ")
	fields := strings.Fields(text)
	if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
		return
	}
	where := fmt.Sprintf("%s:%d", r.file, n)
	if indented && !member(text, fields) {
		r.attribute(fields, where)
		return
	}
	r.symbol, r.help = "", false
	switch fields[0] {
	case "config", "menuconfig":
		if len(fields) < 2 {
			return
		}
		r.symbol = fields[1]
		conditions := append([]condition(nil), r.ifs...)
		r.kconfig[r.symbol] = append(r.kconfig[r.symbol], definition{where: where, conditions: conditions})
	case "if":
		r.ifs = append(r.ifs, condition{text: strings.Join(fields[1:], " "), where: where})
	case "endif":
		if len(r.ifs) > 0 {
			r.ifs = r.ifs[:len(r.ifs)-1]
		}
	}
}

// member tells the entry of an option in a choice, which some files indent, from
// an attribute and from the words of a help text, which stand further in.
func member(text string, fields []string) bool {
	return strings.HasPrefix(text, "\tconfig ") && len(fields) == 2 && fields[1] == strings.ToUpper(fields[1])
}

func (r *kconfigReader) attribute(fields []string, where string) {
	if fields[0] == "help" || fields[0] == "---help---" {
		r.help = true
	}
	if r.help || r.symbol == "" || len(fields) < 3 || fields[0] != "depends" || fields[1] != "on" {
		return
	}
	definitions := r.kconfig[r.symbol]
	last := &definitions[len(definitions)-1]
	last.conditions = append(last.conditions, condition{text: strings.Join(fields[2:], " "), where: where})
}
