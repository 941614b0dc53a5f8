// SPDX-License-Identifier: Apache-2.0

// Package hostlist reads and writes Slurm's compact notation of many nodes: n[1-3,7],gpu[01-10] or r[1-2]n[1-4].
//
// Slurm passes such lists to its hooks, and scontrol prints them. They are untrusted, so the number of names is checked
// before expansion: thirty characters could name a billion nodes.
package hostlist

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// MaxNames is the maximum number of names in a list: the maximum number of nodes in a Slurm cluster.
	MaxNames = 65536
	// maxLength is the longest argument that Linux hands to a program.
	maxLength = 128 << 10
	maxGroups = 2
	// maxDigits keeps numbers far from overflow.
	maxDigits = 9
)

// Expand returns the names of a list in its order, each once.
func Expand(list string) ([]string, error) {
	if list == "" || len(list) > maxLength {
		return nil, fmt.Errorf("host list has %d characters: %w", len(list), kb.ErrInvalid)
	}
	var names []string
	seen := map[string]bool{}
	for rest := list; ; {
		item, after, more := cutItem(rest)
		expanded, err := expandItem(item, MaxNames-len(names))
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", abridge(list), err)
		}
		for _, name := range expanded {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
		if !more {
			return names, nil
		}
		rest = after
	}
}

// Compress is the list of names, sorted: those that differ in the number at their end only share brackets.
func Compress(names []string) string {
	numbers := map[string][]string{}
	for _, name := range names {
		head := strings.TrimRight(name, "0123456789")
		if len(name)-len(head) > maxDigits {
			head = name
		}
		numbers[head] = append(numbers[head], name[len(head):])
	}
	var items []string
	for _, head := range slices.Sorted(maps.Keys(numbers)) {
		tails := numbers[head]
		slices.SortFunc(tails, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
		tails = slices.Compact(tails)
		if tails[0] == "" {
			items, tails = append(items, head), tails[1:]
		}
		switch list := ranges(tails); {
		case len(tails) == 1:
			items = append(items, head+list)
		case len(tails) > 1:
			items = append(items, head+"["+list+"]")
		}
	}
	return strings.Join(items, ",")
}

// Natural orders names as people count: n2 before n10.
func Natural(a, b string) int {
	for a != "" && b != "" {
		numberA, numberB := digits(a), digits(b)
		if numberA == "" || numberB == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(numberA, "0"), strings.TrimLeft(numberB, "0")
		if order := cmp.Or(len(x)-len(y), strings.Compare(x, y), len(numberA)-len(numberB)); order != 0 {
			return order
		}
		a, b = a[len(numberA):], b[len(numberB):]
	}
	return len(a) - len(b)
}

// digits is the number that a text begins with.
func digits(text string) string { return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))] }

// ranges joins sorted numbers that follow each other.
func ranges(tails []string) string {
	var parts []string
	for from := 0; from < len(tails); {
		to := from
		for to+1 < len(tails) && follows(tails[to], tails[to+1]) {
			to++
		}
		part := tails[from]
		if to > from {
			part += "-" + tails[to]
		}
		parts, from = append(parts, part), to+1
	}
	return strings.Join(parts, ",")
}

func follows(a, b string) bool {
	n, err := strconv.Atoi(a)
	return err == nil && fmt.Sprintf("%0*d", len(a), n+1) == b
}

// cutItem splits at the first comma outside brackets.
func cutItem(list string) (item, rest string, more bool) {
	inside := false
	for i := range len(list) {
		switch list[i] {
		case '[':
			inside = true
		case ']':
			inside = false
		case ',':
			if !inside {
				return list[:i], list[i+1:], true
			}
		}
	}
	return list, "", false
}

// expandItem expands one item to at most room names.
func expandItem(item string, room int) ([]string, error) {
	names := []string{""}
	for groups := 0; ; groups++ {
		plain, rest, bracket := strings.Cut(item, "[")
		if strings.Contains(plain, "]") {
			return nil, fmt.Errorf("%q has a ] without a [: %w", item, kb.ErrInvalid)
		}
		for i := range names {
			names[i] += plain
		}
		if !bracket {
			break
		}
		if groups == maxGroups {
			return nil, fmt.Errorf("%q has more than %d brackets: %w", item, maxGroups, kb.ErrInvalid)
		}
		inner, after, closed := strings.Cut(rest, "]")
		if !closed {
			return nil, fmt.Errorf("%q has a [ without a ]: %w", item, kb.ErrInvalid)
		}
		numbers, err := expandNumbers(inner, room/len(names))
		if err != nil {
			return nil, err
		}
		names = cross(names, numbers)
		item = after
	}
	if len(names) > room {
		return nil, tooMany()
	}
	for _, name := range names {
		if err := kb.ValidateNodeName(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func cross(heads, tails []string) []string {
	all := make([]string, 0, len(heads)*len(tails))
	for _, head := range heads {
		for _, tail := range tails {
			all = append(all, head+tail)
		}
	}
	return all
}

// expandNumbers expands the content of brackets: 1-3,07,10-12.
func expandNumbers(text string, room int) ([]string, error) {
	var numbers []string
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, err := number(first)
		if err != nil {
			return nil, err
		}
		high, err := number(last)
		if err != nil {
			return nil, err
		}
		if high < low {
			return nil, fmt.Errorf("range %q falls: %w", part, kb.ErrInvalid)
		}
		if high-low >= room-len(numbers) {
			return nil, tooMany()
		}
		for n := low; n <= high; n++ {
			// The first number's zeros are those of all.
			numbers = append(numbers, fmt.Sprintf("%0*d", len(first), n))
		}
	}
	return numbers, nil
}

func number(text string) (int, error) {
	bad := text == "" || len(text) > maxDigits
	for i := range len(text) {
		bad = bad || text[i] < '0' || text[i] > '9'
	}
	if bad {
		return 0, fmt.Errorf("%q is not a number of up to %d digits: %w", abridge(text), maxDigits, kb.ErrInvalid)
	}
	return strconv.Atoi(text)
}

func tooMany() error {
	return fmt.Errorf("more than %d names: %w", MaxNames, kb.ErrInvalid)
}

func abridge(text string) string {
	const most = 80
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
