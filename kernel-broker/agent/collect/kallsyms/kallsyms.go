// SPDX-License-Identifier: Apache-2.0

// Package kallsyms finds the kernel's functions by address in the kernel's own list: a sorted table and a binary search.
package kallsyms

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ErrHidden: all addresses in the list are zero because the kernel hides them.
var ErrHidden = errors.New("the kernel hides its symbols' addresses")

// ErrLine is a line that is no symbol.
var ErrLine = errors.New("not a symbol")

// Table of functions.
type Table struct{ functions []function }

type function struct {
	at   uint64
	name string
}

// Load reads the running kernel's list.
func Load() (*Table, error) {
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("symbols: %w", err)
	}
	defer file.Close()
	return Read(file)
}

// Read reads a list: address, type and name a line, and for a module's its
// name in brackets.
func Read(from io.Reader) (*Table, error) {
	table := &Table{}
	lines := bufio.NewScanner(from)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || len(fields) > 4 || len(fields[1]) != 1 {
			return nil, fmt.Errorf("line %d: %w", number, ErrLine)
		}
		at, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", number, ErrLine, err)
		}
		if strings.ContainsAny(fields[1], "tTwW") && at != 0 {
			table.functions = append(table.functions, function{at, fields[2]})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("symbols: %w", err)
	}
	if len(table.functions) == 0 {
		return nil, fmt.Errorf("symbols: %w", ErrHidden)
	}
	// Of several names for one address the first one counts, as in the kernel.
	slices.SortStableFunc(table.functions, func(a, b function) int { return cmp.Compare(a.at, b.at) })
	return table, nil
}

// Name of the function that an address is in.
func (t *Table) Name(address uint64) string {
	after, _ := slices.BinarySearchFunc(t.functions, address, func(f function, address uint64) int {
		if f.at <= address {
			return -1
		}
		return 1
	})
	if after == 0 {
		return fmt.Sprintf("%#x", address)
	}
	at := t.functions[after-1].at
	for first := after - 1; ; first-- {
		if first == 0 || t.functions[first-1].at != at {
			return t.functions[first].name
		}
	}
}
