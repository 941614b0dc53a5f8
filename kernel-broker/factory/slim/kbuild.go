// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
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
