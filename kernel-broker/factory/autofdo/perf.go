// SPDX-License-Identifier: Apache-2.0

package autofdo

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

const (
	// kernelHalf of the address space begins here.
	kernelHalf = 0xffff800000000000
	// longestRange without a branch, in bytes. What is longer lost a branch: a processor forgets some where it changes
	// between rings.
	longestRange = 16 << 10
)

// branchesOf reads what "perf script --show-mmap-events -F brstack" says: where the kernel lay, and for each sample its last
// branches, the newest first. Addresses become those of the vmlinux.
func branchesOf(said io.Reader, at map[string]uint64, thunks Thunks) (flow, error) {
	all := flow{ranges: map[span]uint64{}, branches: map[span]uint64{}}
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	shift := uint64(0)
	for lines.Scan() {
		text := lines.Text()
		if lay, name, is := kernelMap(text); is {
			if at[name] == 0 {
				return flow{}, fmt.Errorf("perf found the kernel by %s, which its vmlinux does not have", name)
			}
			shift = lay - at[name]
			continue
		}
		stack, err := branchStack(text, shift)
		if err != nil {
			return flow{}, err
		}
		all.add(stack, thunks)
	}
	return all, lines.Err()
}

// kernelMap reads the address at which a symbol of the kernel lay when perf recorded, from a line such as
//
//	PERF_RECORD_MMAP -1/0: [0xffffffff9d000000(0x1000000) @ 0xffffffff9d000000]: x [kernel.kallsyms]_text
func kernelMap(line string) (address uint64, symbol string, is bool) {
	_, found, is := strings.Cut(line, "PERF_RECORD_MMAP -1/0: [")
	if !is {
		return 0, "", false
	}
	place, symbol, is := strings.Cut(found, "]: x "+kernelName)
	if !is || symbol == "" {
		return 0, "", false
	}
	_, text, _ := strings.Cut(place, " @ 0x")
	address, err := strconv.ParseUint(text, 16, 64)
	return address, symbol, err == nil
}

// branchStack reads the branches of a sample: FROM/TO/ and what is known of each.
func branchStack(line string, shift uint64) ([]span, error) {
	if strings.Contains(line, "PERF_RECORD_") {
		return nil, nil
	}
	var stack []span
	for word := range strings.FieldsSeq(line) {
		var ends [2]uint64
		parts := strings.SplitN(word, "/", 3)
		for i := range ends {
			if len(parts) < 3 {
				return nil, fmt.Errorf("perf's branch %.100q is not FROM/TO/", word)
			}
			value, err := strconv.ParseUint(strings.TrimPrefix(parts[i], "0x"), 16, 64)
			if err != nil {
				return nil, fmt.Errorf("perf's branch %.100q: %w", word, err)
			}
			if value >= kernelHalf {
				value -= shift
			}
			ends[i] = value
		}
		stack = append(stack, span{ends[0], ends[1]})
	}
	return stack, nil
}

// span is two addresses: of a branch, or of the first and the last instruction that ran between two.
type span struct{ from, to uint64 }

// flow is what a record says: how often each branch was taken, and what ran between them.
type flow struct{ ranges, branches map[span]uint64 }

// add a sample's branches, the newest first. What goes through a thunk is one branch.
func (f flow) add(stack []span, thunks Thunks) {
	begin, site := uint64(0), uint64(0)
	for _, branch := range slices.Backward(stack) {
		source := branch.from
		if thunks.has(source) {
			source = site
		} else if begin != 0 && source >= begin && source-begin < longestRange {
			f.ranges[span{begin, source}]++
		}
		begin, site = 0, 0
		switch {
		case branch.to < kernelHalf:
		case thunks.has(branch.to):
			site = source
		default:
			begin = branch.to
			if source >= kernelHalf {
				f.branches[span{source, branch.to}]++
			}
		}
	}
}

// write writes the flow as the emulator's plugin does (measure/plugin/flow.h).
func (f flow) write(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("branches: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	to := bufio.NewWriter(file)
	for _, list := range []struct {
		of      map[span]uint64
		between string
	}{{f.ranges, "-"}, {f.branches, "->"}} {
		_, _ = fmt.Fprintln(to, len(list.of)) // the buffer keeps its error
		for _, s := range slices.SortedFunc(maps.Keys(list.of), func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) }) {
			_, _ = fmt.Fprintf(to, "%x%s%x:%d\n", s.from, list.between, s.to, list.of[s])
		}
	}
	return to.Flush()
}

// recorded turns perf's data into the branches of a kernel.
func recorded(ctx context.Context, sampling Sampling, vmlinux, data, branches string) error {
	at, err := addresses(vmlinux)
	if err != nil {
		return err
	}
	thunks, err := sampling.thunks(at)
	if err != nil {
		return err
	}
	complained := end{most: mostComplained}
	perf := exec.CommandContext(ctx, "perf", "script", "--input", data, "--show-mmap-events", "-F", "brstack") //nolint:gosec // G204: no shell
	perf.Stderr = &complained
	said, err := perf.StdoutPipe()
	if err != nil {
		return fmt.Errorf("perf script: %w", err)
	}
	if err := perf.Start(); err != nil {
		return fmt.Errorf("perf script: %w", err)
	}
	all, err := branchesOf(said, at, thunks)
	_, _ = io.Copy(io.Discard, said) // perf ends by itself
	if waited := perf.Wait(); waited != nil {
		return fmt.Errorf("perf script: %w: %s", waited, complained.words())
	}
	if err != nil {
		return err
	}
	return all.write(branches)
}
