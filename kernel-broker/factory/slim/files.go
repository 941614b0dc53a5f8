// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// Files are where the facts of a slimming stand.
type Files struct {
	// Tree is the unpacked source.
	Tree string
	// Config of the kernel that ran, and the options that its recipe names.
	Config kconfig.Config
	Asked  []string
	// LinkMap of the same kernel.
	LinkMap string
	// Trace of the whole run. RegionTrace is the workload's part of it, or
	// empty: then all that ran counts as the workload's.
	Trace       string
	RegionTrace string
	// Keep is the folder of keep-lists. KeepToo are options that the recipe
	// itself keeps.
	Keep    string
	KeepToo []string
	// Nodes are files of what nodes report of their hardware, and Aliases is a
	// modules.alias; both may be empty.
	Nodes   []string
	Aliases string
}

// mapOption has the build write the link map. It is on for the run's sake and
// changes nothing in the kernel, so nothing is decided about it.
const mapOption = "VMLINUX_MAP"

// Read gathers the facts. Drivers that a node needs and that the kernel never
// had are returned beside them.
func (f Files) Read() (Facts, []Missing, error) {
	facts := Facts{Config: maps.Clone(f.Config), Asked: map[string]bool{}}
	for _, symbol := range f.Asked {
		facts.Asked[symbol] = true
	}
	delete(facts.Config, mapOption)
	var err error
	tree := os.DirFS(f.Tree)
	if facts.Kbuild, err = ReadKbuild(tree); err != nil {
		return Facts{}, nil, err
	}
	if facts.Kconfig, err = kconfig.Read(tree); err != nil {
		return Facts{}, nil, err
	}
	if facts.Uses, err = f.uses(); err != nil {
		return Facts{}, nil, err
	}
	missing, err := f.keep(&facts)
	return facts, missing, err
}

func (f Files) uses() (Uses, error) {
	pieces, err := ReadFile(f.LinkMap, ReadLinkMap)
	if err != nil {
		return nil, err
	}
	run, err := ReadFile(f.Trace, ReadTrace)
	if err != nil {
		return nil, err
	}
	var work Spans
	if f.RegionTrace != "" {
		if work, err = ReadFile(f.RegionTrace, ReadTrace); err != nil {
			return nil, err
		}
	}
	uses := Measure(pieces, run, work)
	if sums := uses.Sum(); sums[Hot].Objects+sums[Warm].Objects == 0 {
		return nil, fmt.Errorf("trace %s: nothing of this kernel ran; is it of another one?", f.Trace)
	}
	return uses, nil
}

func (f Files) keep(facts *Facts) ([]Missing, error) {
	lists, err := ReadKeepLists(os.DirFS(f.Keep))
	if err != nil {
		return nil, err
	}
	facts.Keep = KeepOf(lists, f.Config, len(f.Nodes) > 0)
	for _, symbol := range f.KeepToo {
		if facts.Kconfig.Symbols[symbol] == nil {
			return nil, fmt.Errorf("recipe: keep: no Kconfig file of this source defines %s", symbol)
		}
		facts.Keep.Add(symbol, "the recipe keeps it")
	}
	if len(f.Nodes) == 0 {
		return nil, nil
	}
	nodes, aliases, err := ReadHardware(f.Nodes, f.Aliases)
	if err != nil {
		return nil, err
	}
	return facts.Keep.KeepHardware(nodes, aliases, facts.Kbuild, f.Config), nil
}

// Functions of the kernel that ran, by its System.map: the object of each whose name no other has.
func (f Files) Functions(systemMap string) (map[string]string, error) {
	functions, err := ReadFile(systemMap, ReadSymbols)
	if err != nil {
		return nil, err
	}
	pieces, err := ReadFile(f.LinkMap, ReadLinkMap)
	if err != nil {
		return nil, err
	}
	return objectsOf(functions, pieces), nil
}

// eachLine calls take with each line of a text, which errors name.
func eachLine(reader io.Reader, what string, take func(line string) error) error {
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if err := take(lines.Text()); err != nil {
			return fmt.Errorf("%s: line %d: %w", what, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ReadFile opens a file for one of the package's readers.
func ReadFile[T any](path string, read func(io.Reader) (T, error)) (result T, err error) {
	file, err := os.Open(path)
	if err != nil {
		return result, err
	}
	defer func() { _ = file.Close() }() // only read from
	if result, err = read(file); err != nil {
		return result, fmt.Errorf("%s: %w", path, err)
	}
	return result, nil
}
