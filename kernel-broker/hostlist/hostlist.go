// Package hostlist expands the lists of host names that Slurm's commands and
// environment hold: n1,n[3-5,9],rack[1-2]gpu[01-10].
package hostlist

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Max is how many names a list may stand for.
const Max = 65536

// ErrSyntax is wrapped by every error.
var ErrSyntax = errors.New("malformed host list")

// Expand returns the names that a list stands for, in its order.
func Expand(list string) ([]string, error) {
	var names []string
	for _, part := range split(list) {
		more, err := expandPart(part, Max-len(names))
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", shorten(list), err)
		}
		names = append(names, more...)
	}
	return names, nil
}

// split cuts at the commas outside of brackets.
func split(list string) []string {
	var parts []string
	depth, begin := 0, 0
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, list[begin:i])
				begin = i + 1
			}
		}
	}
	return append(parts, list[begin:])
}

// expandPart expands the first bracket and, for each of its numbers, the rest.
func expandPart(part string, room int) ([]string, error) {
	open := strings.IndexByte(part, '[')
	if open < 0 {
		if part == "" || strings.ContainsAny(part, "] \t\n") {
			return nil, fmt.Errorf("name %q: %w", part, ErrSyntax)
		}
		if room < 1 {
			return nil, fmt.Errorf("more than %d names: %w", Max, ErrSyntax)
		}
		return []string{part}, nil
	}
	end := strings.IndexByte(part, ']')
	if end < open {
		return nil, fmt.Errorf("bracket in %q: %w", part, ErrSyntax)
	}
	numbers, err := expandRanges(part[open+1:end], room)
	if err != nil {
		return nil, err
	}
	tails := []string{""}
	if rest := part[end+1:]; rest != "" {
		if tails, err = expandPart(rest, room/max(1, len(numbers))); err != nil {
			return nil, err
		}
	}
	if len(numbers)*len(tails) > room {
		return nil, fmt.Errorf("more than %d names: %w", Max, ErrSyntax)
	}
	names := make([]string, 0, len(numbers)*len(tails))
	for _, n := range numbers {
		for _, t := range tails {
			names = append(names, part[:open]+n+t)
		}
	}
	return names, nil
}

func expandRanges(text string, room int) ([]string, error) {
	var numbers []string
	for r := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(r, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 32)
		to, err2 := strconv.ParseUint(high, 10, 32)
		if err1 != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("range %q: %w", r, ErrSyntax)
		}
		if to-from >= uint64(max(0, room-len(numbers))) {
			return nil, fmt.Errorf("more than %d names: %w", Max, ErrSyntax)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", len(low), n))
		}
	}
	return numbers, nil
}

func shorten(text string) string {
	if len(text) > 80 {
		return text[:80] + "..."
	}
	return text
}
