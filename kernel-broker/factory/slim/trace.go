// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// kernelHalf is where the kernel's half of the address space begins on x86-64.
const kernelHalf = 0xffff800000000000

// Span is a half-open range of addresses.
type Span struct{ Begin, End uint64 }

// Spans is what ran: ranges in order that do not touch each other.
type Spans []Span

// ReadTrace reads the blocks that ran, one "begin end" in hex per line, in any
// order and with repeats. What lies in the user's half is left out.
func ReadTrace(reader io.Reader) (Spans, error) {
	var spans Spans
	err := eachLine(reader, "trace", func(line string) error {
		line = strings.TrimSpace(line)
		if line == "" {
			return nil
		}
		span, err := parseSpan(line)
		if err == nil && span.Begin >= kernelHalf {
			spans = append(spans, span)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return join(spans), nil
}

func parseSpan(line string) (Span, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return Span{}, fmt.Errorf("%q is not \"begin end\"", line)
	}
	begin, err := parseHex(fields[0])
	if err != nil {
		return Span{}, err
	}
	end, err := parseHex(fields[1])
	if err != nil {
		return Span{}, err
	}
	if end <= begin {
		return Span{}, fmt.Errorf("block ends at %#x, before it begins at %#x", end, begin)
	}
	return Span{Begin: begin, End: end}, nil
}

func parseHex(text string) (uint64, error) {
	value, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not an address in hex", text)
	}
	return value, nil
}

func join(spans Spans) Spans {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Begin, b.Begin) })
	joined := Spans{}
	for _, span := range spans {
		if last := len(joined) - 1; last >= 0 && span.Begin <= joined[last].End {
			joined[last].End = max(joined[last].End, span.End)
			continue
		}
		joined = append(joined, span)
	}
	return joined
}

// In counts the bytes of the range that ran.
func (s Spans) In(begin, end uint64) uint64 {
	var ran uint64
	first := sort.Search(len(s), func(i int) bool { return s[i].End > begin })
	for _, span := range s[first:] {
		if span.Begin >= end {
			break
		}
		ran += min(span.End, end) - max(span.Begin, begin)
	}
	return ran
}

// JobTrace is what the job of a profiling run was seen to use of the kernel that
// it ran on. That may be any kernel: names are all that its traces have in common
// with the kernel that is slimmed.
type JobTrace struct {
	Run uint64 `json:"run"`
	// Results of the nodes that it was made of.
	Results []JobResult `json:"results"`
	// Releases of the kernels that the job ran on.
	Releases []string `json:"releases"`
	// Calls are system calls, Functions are the kernel's, FileSystems types of
	// those that the job had files on.
	Calls       []string `json:"calls"`
	Functions   []string `json:"functions"`
	FileSystems []string `json:"file_systems"`
}

// JobResult is what one node delivered.
type JobResult struct {
	Node   string `json:"node"`
	Digest string `json:"digest"`
}

// ReadJobTraces reads what WriteJobTrace wrote, and sorts by the runs' numbers: in
// which order they are named means nothing.
func ReadJobTraces(paths []string) ([]JobTrace, error) {
	var all []JobTrace
	for _, path := range paths {
		trace, err := ReadFile(path, readJobTrace)
		if err != nil {
			return nil, fmt.Errorf("trace of a run: %w", err)
		}
		all = append(all, trace)
	}
	slices.SortFunc(all, func(a, b JobTrace) int { return cmp.Compare(a.Run, b.Run) })
	for i := 1; i < len(all); i++ {
		if all[i].Run == all[i-1].Run {
			return nil, fmt.Errorf("trace of run %d: it is there twice", all[i].Run)
		}
	}
	return all, nil
}

func readJobTrace(reader io.Reader) (JobTrace, error) {
	var trace JobTrace
	decoder := json.NewDecoder(reader)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&trace)
	if err == nil && trace.Run == 0 {
		err = errors.New("no number of a run")
	}
	return trace, err
}

func (t JobTrace) Write(file string) error {
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("trace of run %d: %w", t.Run, err)
	}
	return atomicfile.Write(file, append(text, '\n'), 0o644)
}

// callTable is where the kernel's source has its system calls.
const callTable = "arch/x86/entry/syscalls/syscall_64.tbl"

// Calls are the functions by which a kernel is entered, by the system calls' names
// for programs: fstat is sys_newfstat.
type Calls map[string]string

// ReadCalls reads the kernel's table: number, kind, name and function.
func ReadCalls(reader io.Reader) (Calls, error) {
	calls := Calls{}
	err := eachLine(reader, "system calls", func(line string) error {
		text, _, _ := strings.Cut(line, "#")
		// Calls of the kind x32 are for programs of another kind.
		if fields := strings.Fields(text); len(fields) >= 4 && fields[1] != "x32" {
			calls[fields[2]] = fields[3]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("system calls: none in %s", path.Base(callTable))
	}
	return calls, nil
}

// foreignCalls stands for all calls of 32-bit programs, and compatEntries are where
// those come into the kernel.
const foreignCalls = "[32-bit call]"

var compatEntries = []string{"entry_INT80_compat", "entry_SYSCALL_compat", "entry_SYSENTER_compat"}

// entries are the names under which a kernel may have the beginning of a call. The
// inner ones are there where the compiler left them whole.
func (c Calls) entries(call string) []string {
	if call == foreignCalls {
		return compatEntries
	}
	function := c[call]
	if function == "" {
		return nil
	}
	return []string{"__x64_" + function, "__se_" + function, "__do_" + function}
}

// Names are the objects that have a function of each name.
type Names map[string][]string

// ReadNames reads a System.map, or what nm prints, beside the link map of the same
// kernel. A part that the compiler made of a function has the function's name.
func ReadNames(reader io.Reader, pieces []Piece) (Names, error) {
	symbols, err := readCode(reader)
	if err != nil {
		return nil, err
	}
	for i := range symbols {
		symbols[i].Name, _, _ = strings.Cut(symbols[i].Name, ".")
	}
	names := namesOf(symbols, pieces)
	if len(names) == 0 {
		return nil, errors.New("symbols: none of them lies in an object of the link map")
	}
	return names, nil
}
