package slim

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// Function is a symbol of code, up to the next symbol.
type Function struct {
	Name  string
	Begin uint64
	End   uint64
	// Global names are told apart; two local ones may be equal.
	Global bool
}

// ReadSymbols reads nm, System.map or /proc/kallsyms, in any order, and keeps
// the functions of the kernel's own image. The last function, whose end is
// not known, is left out: it is a mark of the linker script.
func ReadSymbols(reader io.Reader) ([]Function, error) {
	var all []Function
	lines := bufio.NewScanner(reader)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || len(fields[1]) != 1 {
			continue // a module's symbol, an undefined one, or nothing
		}
		address, err := parseHex([]byte(fields[0]))
		if err != nil {
			return nil, fmt.Errorf("symbols: line %d: %w", n, err)
		}
		if address < kernelHalf || !isCode(fields[1][0]) {
			continue
		}
		all = append(all, Function{Name: fields[2], Begin: address, Global: fields[1] == "T" || fields[1] == "W"})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("symbols: %w", err)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Begin < all[j].Begin })
	// Of several names for one address the first stands for all.
	all = slices.CompactFunc(all, func(a, b Function) bool { return a.Begin == b.Begin })
	for i := range all {
		if i+1 < len(all) {
			all[i].End = all[i+1].Begin
		}
	}
	if len(all) > 0 {
		all = all[:len(all)-1]
	}
	return all, nil
}

// isCode tells nm's letters for code, local and global, strong and weak.
func isCode(kind byte) bool { return kind == 't' || kind == 'T' || kind == 'w' || kind == 'W' }

// Ran parts functions into those that ran and those that did not.
func Ran(functions []Function, run Spans) (ran, cold []Function) {
	for _, function := range functions {
		if run.In(function.Begin, function.End) > 0 {
			ran = append(ran, function)
		} else {
			cold = append(cold, function)
		}
	}
	return ran, cold
}

// FunctionsOf finds each object's functions by their addresses.
func FunctionsOf(functions []Function, pieces []Piece) map[string][]Function {
	found := map[string][]Function{}
	for _, piece := range pieces {
		first := sort.Search(len(functions), func(i int) bool { return functions[i].Begin >= piece.Begin })
		for _, function := range functions[first:] {
			if function.Begin >= piece.Begin+piece.Size {
				break
			}
			found[piece.Object] = append(found[piece.Object], function)
		}
	}
	return found
}
