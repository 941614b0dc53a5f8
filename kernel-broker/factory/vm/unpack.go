// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/tarlimit"
)

// The parts of the stream that /init sends: the script's exit code, the files,
// and a last entry that says that tar came to its end.
const (
	exitEntry = "run/exit"
	outEntry  = "out"
	endEntry  = "run/whole"
)

// What a guest may leave behind: some hundred times the counters of a kernel.
const (
	mostBytes   = 2 << 30
	mostEntries = 1 << 17
)

// unpack takes the stream apart: files go below dir, the exit code is returned.
// A guest is not trusted with the host: names stay below dir, only folders and
// files are made, and no more of them than a run has reason to leave.
func unpack(stream, dir string) (code int, err error) {
	file, err := os.Open(stream)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // only read from
	return take(bufio.NewReader(file), dir)
}

func take(stream io.Reader, dir string) (code int, err error) {
	unzipped, err := gzip.NewReader(stream)
	if err != nil {
		return 0, fmt.Errorf("the result: %w", err)
	}
	// The port carries nothing after the first stream.
	unzipped.Multistream(false)
	code, whole := -1, false
	budget := tarlimit.Budget{Bytes: mostBytes, Entries: mostEntries}
	err = budget.Each(unzipped, func(header *tar.Header, entry io.Reader) (err error) {
		switch name := path.Clean(header.Name); name {
		case exitEntry:
			code, err = readCode(entry)
		case endEntry:
			whole = true
		default:
			err = unpackEntry(header, entry, name, dir)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("the result: %w", err)
	}
	if code < 0 || !whole {
		return 0, errors.New("the result did not come whole")
	}
	return code, nil
}

func readCode(reader io.Reader) (int, error) {
	text, err := io.ReadAll(io.LimitReader(reader, 16))
	if err != nil {
		return 0, err
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || code < 0 || code > 255 {
		return 0, fmt.Errorf("exit code %q", text)
	}
	return code, nil
}

func unpackEntry(header *tar.Header, reader io.Reader, name, dir string) error {
	below, found := strings.CutPrefix(name+"/", outEntry+"/")
	below = strings.TrimSuffix(below, "/")
	if !found || (below != "" && !filepath.IsLocal(below)) {
		return fmt.Errorf("it holds %q, which is not below /out", header.Name)
	}
	target := filepath.Join(dir, below)
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(target, 0o755)
	case tar.TypeReg:
		return tarlimit.WriteFile(target, reader)
	}
	return nil // links and devices say nothing on another machine
}

// libraryFolders are where Debian's loader looks without a cache, and one that a link of an installed system leads to: a
// program in the guest finds that by LD_LIBRARY_PATH.
var libraryFolders = []string{
	"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib",
	"/usr/lib/x86_64-linux-gnu/blas",
}

// opened is what the C library itself opens, when a thread ends.
const opened = "libgcc_s.so.1"

// program is what the dynamic part of an ELF file says; nil for other files.
type program struct {
	loader string
	needed []string
	runs   []string // RPATH or RUNPATH, with $ORIGIN as written
}

// readProgram returns nil for what is no ELF file.
func readProgram(path string) (*program, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	var magic [4]byte
	if _, err := io.ReadFull(file, magic[:]); err != nil || string(magic[:]) != elf.ELFMAG {
		return nil, nil //nolint:nilerr // a file too short for a magic number is not ELF
	}
	image, err := elf.NewFile(file)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	found := &program{}
	for _, segment := range image.Progs {
		if segment.Type == elf.PT_INTERP {
			text, err := io.ReadAll(segment.Open())
			if err != nil {
				return nil, fmt.Errorf("file %q: %w", path, err)
			}
			found.loader = strings.TrimRight(string(text), "\x00")
		}
	}
	if found.needed, err = image.ImportedLibraries(); err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, err := image.DynString(tag)
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return nil, fmt.Errorf("file %q: %w", path, err)
		}
		for _, list := range paths {
			found.runs = append(found.runs, strings.Split(list, ":")...)
		}
	}
	return found, nil
}

// closure finds, for programs, the libraries that they and their libraries
// need, each once.
type closure struct {
	systems []string // unpacked systems, before the host
	files   map[string]string
}

func newClosure(systems []string) *closure {
	return &closure{systems: append(slices.Clone(systems), ""), files: map[string]string{}}
}

// add takes in a program at its place in the guest and all it needs. Files maps
// a place in the guest to a file on the host.
func (c *closure) add(program, source string) error {
	dynamic, err := readProgram(source)
	if err != nil || dynamic == nil {
		return err
	}
	wanted := dynamic.needed
	if dynamic.loader != "" {
		wanted = append(wanted, dynamic.loader, opened)
	}
	origin := filepath.Dir("/" + program)
	for _, name := range wanted {
		guest, host, err := c.find(name, origin, dynamic.runs)
		if err != nil && name == opened {
			continue // a program that needs it lists it; most do not
		}
		if err != nil {
			return fmt.Errorf("program %q: %w", source, err)
		}
		if _, known := c.files[guest]; !known {
			c.files[guest] = host
			if err := c.add(guest, host); err != nil {
				return err
			}
		}
	}
	return nil
}

// find looks for a library as the loader would, in each system in turn.
func (c *closure) find(name, origin string, runs []string) (guest, host string, err error) {
	candidates := []string{name}
	if !filepath.IsAbs(name) {
		candidates = nil
		for _, folder := range slices.Concat(runs, libraryFolders) {
			folder = strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(folder)
			if filepath.IsAbs(folder) {
				candidates = append(candidates, filepath.Join(folder, name))
			}
		}
	}
	for _, system := range c.systems {
		for _, candidate := range candidates {
			path := filepath.Join(system, candidate)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				guest, err := place(candidate)
				return guest, path, err
			}
		}
	}
	return "", "", fmt.Errorf("library %q is not on this machine", name)
}
