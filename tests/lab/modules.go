// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// bootModules is what a node's machine needs; those that a kernel has built in
// have no file and are skipped.
var bootModules = []string{
	"virtio_pci", "virtio_blk", "virtio_net", "virtio-rng", "crc32c_generic", "ext4", "9pnet_virtio", "9p", "overlay", "i6300esb",
}

// module is one file of a kernel's modules, unpacked.
type module struct {
	name string // file name without .ko
	text []byte
}

// loadModules returns the wanted modules with all they depend on, in the order
// in which they can be inserted.
func loadModules(dir string, wanted []string) ([]module, error) {
	files, err := moduleFiles(dir)
	if err != nil {
		return nil, err
	}
	var order []module
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		// Dependencies are written with _, file names with either.
		name = strings.ReplaceAll(name, "-", "_")
		path, ok := files[name]
		if seen[name] || !ok {
			return nil
		}
		seen[name] = true
		text, err := readModule(path)
		if err != nil {
			return fmt.Errorf("module %q: %w", name, err)
		}
		needs, err := moduleNeeds(text)
		if err != nil {
			return fmt.Errorf("module %q: %w", name, err)
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		order = append(order, module{name: name, text: text})
		return nil
	}
	for _, name := range wanted {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleFiles maps module names to files.
func moduleFiles(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _, ok := strings.Cut(d.Name(), ".ko")
		if ok && !d.IsDir() {
			files[strings.ReplaceAll(name, "-", "_")] = path
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	return files, nil
}

func readModule(path string) ([]byte, error) {
	switch filepath.Ext(path) {
	case ".xz":
		return exec.Command("xz", "-dc", path).Output()
	case ".zst":
		return exec.Command("zstd", "-dc", path).Output()
	case ".gz":
		return exec.Command("gzip", "-dc", path).Output()
	}
	return os.ReadFile(path)
}

// moduleNeeds reads the names that a module says it depends on, soft ones too
// (ext4 asks for its checksum that way).
func moduleNeeds(text []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	var needs []string
	for _, entry := range strings.Split(string(info), "\x00") {
		key, value, _ := strings.Cut(entry, "=")
		switch key {
		case "depends":
			needs = append(needs, strings.FieldsFunc(value, func(r rune) bool { return r == ',' })...)
		case "softdep":
			needs = append(needs, strings.Fields(strings.TrimPrefix(value, "pre:"))...)
		}
	}
	return needs, nil
}
