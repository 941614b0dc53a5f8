// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraryPlaces are where Debian's loader looks by default. The nodes have no
// ld.so.cache, so a library elsewhere would not be found there either.
var libraryPlaces = []string{"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib", "/lib"}

// resolver finds the shared libraries that files need, as the loader would.
type resolver struct {
	system system
	found  map[string]string // path on the node to host file
	done   map[string]bool
}

func newResolver(s system) *resolver {
	return &resolver{system: s, found: map[string]string{}, done: map[string]bool{}}
}

// add follows a file's needs; a file that is no ELF file has none.
func (r *resolver) add(path string) error {
	if r.done[path] {
		return nil
	}
	r.done[path] = true
	if !isELF(path) {
		return nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil // static
	}
	if loader := interpreter(f); loader != "" {
		r.found[loader] = r.system.Path(loader)
	}
	runpath, err := f.DynString(elf.DT_RUNPATH)
	if err != nil {
		return fmt.Errorf("file %q: %w", path, err)
	}
	var dirs []string
	for _, p := range runpath {
		dirs = append(dirs, strings.Split(p, ":")...)
	}
	for _, name := range needed {
		if err := r.library(name, dirs); err != nil {
			return fmt.Errorf("file %q: %w", path, err)
		}
	}
	return nil
}

// library finds one library by name.
func (r *resolver) library(name string, first []string) error {
	for _, dir := range slices.Concat(first, libraryPlaces) {
		path := filepath.Join(dir, name)
		file := r.system.Path(path)
		if _, err := os.Stat(file); err == nil {
			r.found[path] = file
			return r.add(file)
		}
	}
	return fmt.Errorf("library %q: not in %s of %s", name, strings.Join(libraryPlaces, ", "), r.system.Dir)
}

func interpreter(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			return ""
		}
		return strings.TrimRight(string(text), "\x00")
	}
	return ""
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	n, err := f.Read(magic)
	return err == nil && n == 4 && string(magic) == elf.ELFMAG
}
