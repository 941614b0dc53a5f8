// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const suffix = ".gcda"

// mostCounters of all files are far more than any kernel's: a few bytes of a
// file stand for as many that are zero as it likes.
const mostCounters = 1 << 24

// Profile is what one or more runs of an instrumented kernel counted, by the
// object's path without its ending ("fs/read_write").
type Profile struct {
	Files map[string]File
	// Runs is how many runs were added up.
	Runs uint32
}

// ErrDiffer is in the error of Merge when the profiles are of two kernels.
var ErrDiffer = errors.New("counters of another kernel")

// load reads every .gcda file below a folder.
func load(dir string) (Profile, error) {
	profile := Profile{Files: map[string]File{}, Runs: 1}
	counters := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // G122: a folder of our own, into which only regular files are unpacked
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		file, err := Parse(data)
		if err != nil {
			return fmt.Errorf("%q: %w", relative, err)
		}
		if counters += file.counters(); counters > mostCounters {
			return fmt.Errorf("%q and what comes before it have %d counters, a kernel has no more than %d: %w", relative, counters, mostCounters, ErrFormat)
		}
		profile.Files[strings.TrimSuffix(relative, suffix)] = file
		return nil
	})
	if err != nil {
		return Profile{}, fmt.Errorf("profile %q: %w", dir, err)
	}
	if len(profile.Files) == 0 {
		return Profile{}, fmt.Errorf("profile %q: no %s file in it", dir, suffix)
	}
	return profile, nil
}

// Below takes a folder away from the front of every name: that of the
// instrumented objects, under which the kernel shows its files. A file from
// elsewhere belongs to another build, and is an error. What is below has to be
// the path of an object: it becomes the name of a file, and a path again.
func (p Profile) Below(objects string) (Profile, error) {
	prefix := strings.Trim(filepath.ToSlash(filepath.Clean(objects)), "/") + "/"
	below := Profile{Files: make(map[string]File, len(p.Files)), Runs: p.Runs}
	for _, name := range p.Names() {
		short, ok := strings.CutPrefix(name, prefix)
		if !ok {
			return Profile{}, fmt.Errorf("profile of %q is not from below %q: %w", name, objects, ErrDiffer)
		}
		if !isObject(short) {
			return Profile{}, fmt.Errorf("profile of %q: that is no path of an object: %w", name, ErrFormat)
		}
		below.Files[short] = p.Files[name]
	}
	return below, nil
}

// isObject reports whether a name is a path below the objects' folder, and the
// same after Mangled and back.
func isObject(name string) bool {
	return name != "." && filepath.IsLocal(name) && filepath.Clean(name) == name && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '#' || r == utf8.RuneError || unicode.IsControl(r)
	})
}

// Names of the objects, sorted.
func (p Profile) Names() []string { return slices.Sorted(maps.Keys(p.Files)) }

// Max is the largest arc counter of all files.
func (p Profile) Max() int64 {
	var largest int64
	for _, file := range p.Files {
		largest = max(largest, file.Max())
	}
	return largest
}

// Ran lists the objects of which anything was executed.
func (p Profile) Ran() []string {
	var ran []string
	for _, name := range p.Names() {
		if p.Files[name].Ran() {
			ran = append(ran, name)
		}
	}
	return ran
}

// Merge adds another run's counters. Both must come from the same build: a
// function that differs is an error which names it, and nothing is merged.
func (p Profile) Merge(other Profile) (Profile, error) {
	sum, err := p.joined(other, p.Runs+other.Runs, add)
	if err != nil {
		return Profile{}, err
	}
	for name, file := range other.Files {
		if _, both := p.Files[name]; !both {
			sum.Files[name] = file
		}
	}
	return sum, nil
}

// joined joins the files that both have, counter by counter.
func (p Profile) joined(other Profile, runs uint32, join func(a, b int64) (int64, error)) (Profile, error) {
	out := Profile{Files: maps.Clone(p.Files), Runs: runs}
	for _, name := range other.Names() {
		mine, both := p.Files[name]
		if !both {
			continue
		}
		file, err := mine.with(other.Files[name], join)
		if err != nil {
			return Profile{}, fmt.Errorf("profile of %q: %w", name, err)
		}
		out.Files[name] = file
	}
	return out, nil
}

// with joins two files of the same functions, counter by counter.
func (f File) with(other File, join func(a, b int64) (int64, error)) (File, error) {
	if f.Version != other.Version {
		return File{}, fmt.Errorf("compiler versions %q and %q: %w", versionText(f.Version), versionText(other.Version), ErrDiffer)
	}
	if len(f.Functions) != len(other.Functions) {
		return File{}, fmt.Errorf("%d functions and %d: %w", len(f.Functions), len(other.Functions), ErrDiffer)
	}
	sum := File{Version: f.Version, Functions: make([]Function, len(f.Functions))}
	for i, function := range f.Functions {
		merged, err := function.with(other.Functions[i], join)
		if err != nil {
			return File{}, fmt.Errorf("function %08x: %w", function.Ident, err)
		}
		sum.Functions[i] = merged
	}
	return sum, nil
}

func (f Function) with(other Function, join func(a, b int64) (int64, error)) (Function, error) {
	if f.Ident != other.Ident || f.Lines != other.Lines || f.Flow != other.Flow {
		return Function{}, fmt.Errorf("checksums %08x-%08x-%08x and %08x-%08x-%08x: %w",
			f.Ident, f.Lines, f.Flow, other.Ident, other.Lines, other.Flow, ErrDiffer)
	}
	if len(f.Counters) != len(other.Counters) {
		return Function{}, fmt.Errorf("%d kinds of counters and %d: %w", len(f.Counters), len(other.Counters), ErrDiffer)
	}
	sum := Function{Ident: f.Ident, Lines: f.Lines, Flow: f.Flow}
	for i, counter := range f.Counters {
		merged, err := counter.with(other.Counters[i], join)
		if err != nil {
			return Function{}, err
		}
		sum.Counters = append(sum.Counters, merged)
	}
	return sum, nil
}

// with joins arcs. The other kinds hold values and not only counts; kernels
// have none of them.
func (c Counter) with(other Counter, join func(a, b int64) (int64, error)) (Counter, error) {
	if c.Kind != other.Kind || len(c.Values) != len(other.Values) {
		return Counter{}, fmt.Errorf("%d counters of kind %d and %d of kind %d: %w",
			len(c.Values), c.Kind, len(other.Values), other.Kind, ErrDiffer)
	}
	if c.Kind != arcs {
		return Counter{}, fmt.Errorf("counters of kind %d cannot be added", c.Kind)
	}
	joined := Counter{Kind: c.Kind, Values: make([]int64, len(c.Values))}
	for i, value := range c.Values {
		var err error
		if joined.Values[i], err = join(value, other.Values[i]); err != nil {
			return Counter{}, fmt.Errorf("arc %d: %w", i, err)
		}
	}
	return joined, nil
}

func add(a, b int64) (int64, error) {
	if a > math.MaxInt64-b {
		return 0, fmt.Errorf("%d and %d are too much", a, b)
	}
	return a + b, nil
}

// Encoded is the profile as GCC reads it, by the object's name. A file in
// which nothing ran is the same in every profile of one build.
func (p Profile) Encoded() map[string][]byte {
	largest := p.Max()
	encoded := make(map[string][]byte, len(p.Files))
	for name, file := range p.Files {
		if file.Ran() {
			encoded[name] = file.Encode(p.Runs, largest)
		} else {
			encoded[name] = file.Encode(1, math.MaxUint32)
		}
	}
	return encoded
}

// Mode is how far the compiler may go with a profile.
type Mode string

// The modes; doc.go says what they differ in.
const (
	ModeFull Mode = "pgo"
	ModeSafe Mode = "pgo-safe"
)

// Flags for the compiler: the profile in the folder dir, for objects below the
// folder objects. Both are absolute.
func (m Mode) Flags(dir, objects string) ([]string, error) {
	var use []string
	switch m {
	case ModeFull:
		use = []string{"-fprofile-use=" + dir}
	case ModeSafe:
		use = []string{"-fbranch-probabilities", "-fprofile-dir=" + dir}
	default:
		return nil, fmt.Errorf("%q is no way to use a profile", string(m))
	}
	return append(use,
		"-fprofile-prefix-path="+objects,
		// Counters of several processors may be a little apart.
		"-fprofile-correction",
		"-Wmissing-profile",
		"-Wno-error=coverage-mismatch",
	), nil
}
