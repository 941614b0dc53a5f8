// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Kbuild says for each object of a kernel tree which options build it in, as
// the makefiles have it, for all configurations at once.
type Kbuild struct {
	// Objects by their path in the object folder, members of composite
	// objects one by one.
	Objects map[string]Gates
	// Modules by name: what must hold for the module's code to be there.
	Modules map[string]Gates
	// Unread are the words of makefiles that this reader cannot write out.
	// Objects that only they name have no gate, and their options stay.
	Unread []string
}

// deepest is more folders than any path of the kernel has.
const deepest = 24

// ReadKbuild reads the makefiles of a kernel tree, from its top.
func ReadKbuild(tree fs.FS) (*Kbuild, error) {
	reader := kbuildReader{
		tree:   tree,
		kbuild: &Kbuild{Objects: map[string]Gates{}, Modules: map[string]Gates{}},
		parsed: map[string]*makefile{},
		seen:   map[string]bool{},
	}
	// The architecture's own makefile names folders from the top.
	arch := "arch/" + kconfig.Constants["SRCARCH"]
	if err := reader.makefileOf(path.Join(arch, "Makefile"), ".", nil, "core", "drivers", "libs", "head"); err != nil {
		return nil, err
	}
	for _, folder := range []string{".", arch, "lib"} {
		if err := reader.folder(folder, nil, 0); err != nil {
			return nil, err
		}
	}
	if len(reader.kbuild.Objects) == 0 {
		return nil, errors.New("makefiles: no object in them")
	}
	slices.Sort(reader.kbuild.Unread)
	return reader.kbuild, nil
}

type kbuildReader struct {
	tree   fs.FS
	kbuild *Kbuild
	parsed map[string]*makefile // nil: no such file
	seen   map[string]bool      // folder and gate
	depth  int
}

func (r *kbuildReader) folder(dir string, gate Gate, depth int) error {
	dir = path.Clean(dir)
	visit := dir + " " + gate.String()
	if r.seen[visit] || depth > deepest || strings.HasPrefix(dir, "..") {
		return nil
	}
	r.seen[visit] = true
	r.depth = depth
	for _, name := range []string{"Kbuild", "Makefile"} {
		file := path.Join(dir, name)
		if dir == "." && name == "Makefile" {
			break // the top one is no Kbuild file
		}
		parsed, err := r.parse(file)
		if err != nil {
			return err
		}
		if parsed != nil {
			return r.makefileOf(file, dir, gate, "obj", "lib")
		}
	}
	return nil
}

func (r *kbuildReader) parse(file string) (*makefile, error) {
	if parsed, known := r.parsed[file]; known {
		return parsed, nil
	}
	data, err := fs.ReadFile(r.tree, file)
	if errors.Is(err, fs.ErrNotExist) {
		r.parsed[file] = nil
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("makefile %q: %w", file, err)
	}
	parsed := parseMakefile(string(data))
	r.parsed[file] = &parsed
	return &parsed, nil
}

func (r *kbuildReader) makefileOf(file, dir string, around Gate, lists ...string) error {
	parsed, err := r.parse(file)
	if err != nil {
		return err
	}
	if parsed == nil {
		return fmt.Errorf("makefile %q: %w", file, fs.ErrNotExist)
	}
	expand := expander{makefile: *parsed, open: map[string]bool{}}
	depth := r.depth
	for _, list := range lists {
		for _, entry := range expand.list(list) {
			if err := r.entry(&expand, dir, entry, around, depth); err != nil {
				return err
			}
		}
	}
	for _, text := range expand.unread {
		r.kbuild.Unread = append(r.kbuild.Unread, file+": "+text)
	}
	return nil
}

func (r *kbuildReader) entry(expand *expander, dir string, entry word, around Gate, depth int) error {
	gate := around.and(entry.gate)
	target := path.Join(dir, entry.text)
	if strings.HasSuffix(entry.text, "/") {
		return r.folder(target, gate, depth+1)
	}
	name, object := strings.CutSuffix(entry.text, ".o")
	if !object {
		return nil
	}
	module := strings.ReplaceAll(path.Base(name), "-", "_")
	r.kbuild.Modules[module] = r.kbuild.Modules[module].with(gate)
	members := expand.list(name)
	if len(members) == 0 {
		r.kbuild.Objects[target] = r.kbuild.Objects[target].with(gate)
		return nil
	}
	for _, member := range members {
		if strings.HasSuffix(member.text, ".o") {
			part := path.Join(dir, path.Dir(name), member.text)
			r.kbuild.Objects[part] = r.kbuild.Objects[part].with(gate.and(member.gate))
		}
	}
	return nil
}

// Built reports whether the configuration builds the object in, and whether
// any makefile names it at all.
func (k *Kbuild) Built(object string, config kconfig.Config) (built, known bool) {
	gates, known := k.Objects[object]
	return gates.hold(config), known
}

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
