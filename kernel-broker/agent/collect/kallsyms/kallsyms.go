// SPDX-License-Identifier: Apache-2.0

// Package kallsyms reads the running kernel's list of functions, and names addresses by it.
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

// Remedy of a kernel without a list, or with a hidden one.
const Remedy = "build the kernel with CONFIG_KALLSYMS, and set kernel.kptr_restrict to 0 or 1"

// errHidden: all addresses in the list are zero because the kernel hides them.
var errHidden = errors.New("the kernel hides its symbols' addresses")

// errLine is a line that is no symbol.
var errLine = errors.New("not a symbol")

// Table of functions, by their addresses.
type Table struct{ functions []function }

type function struct {
	at   uint64
	name string
	// module with brackets around it; empty for the kernel's own.
	module string
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
			return nil, fmt.Errorf("line %d: %w", number, errLine)
		}
		at, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", number, errLine, err)
		}
		if strings.ContainsAny(fields[1], "tTwW") && at != 0 {
			table.functions = append(table.functions, function{at, fields[2], strings.Join(fields[3:], "")})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("symbols: %w", err)
	}
	if len(table.functions) == 0 {
		return nil, fmt.Errorf("symbols: %w", errHidden)
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

// Addresses of the functions of a list, a line each: the name, and for a module's that in brackets. A name that the
// table has more often than the list is left out, since nothing says which one is meant.
func (t *Table) Addresses(list io.Reader) ([]uintptr, error) {
	listed := map[string]int{}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		listed[strings.Join(strings.Fields(lines.Text()), " ")]++
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list of functions: %w", err)
	}
	at := map[string][]uintptr{}
	for _, f := range t.functions {
		name := strings.TrimSpace(f.name + " " + f.module)
		if listed[name] > 0 {
			at[name] = append(at[name], uintptr(f.at))
		}
	}
	var all []uintptr
	for name, addresses := range at {
		if len(addresses) <= listed[name] {
			all = append(all, addresses...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
