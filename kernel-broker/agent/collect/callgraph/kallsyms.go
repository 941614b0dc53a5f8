// SPDX-License-Identifier: Apache-2.0

package callgraph

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

// errHidden: all addresses in the list are zero because the kernel hides them.
var errHidden = errors.New("the kernel hides its symbols' addresses")

// errLine is a line that is no symbol.
var errLine = errors.New("not a symbol")

// symbolTable of functions.
type symbolTable struct{ functions []function }

type function struct {
	at   uint64
	name string
}

// loadSymbols reads the running kernel's list.
func loadSymbols() (*symbolTable, error) {
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("symbols: %w", err)
	}
	defer file.Close()
	return readSymbols(file)
}

// readSymbols reads a list: address, type and name a line, and for a module's its
// name in brackets.
func readSymbols(from io.Reader) (*symbolTable, error) {
	table := &symbolTable{}
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
			table.functions = append(table.functions, function{at, fields[2]})
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

// name of the function that an address is in.
func (t *symbolTable) name(address uint64) string {
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
