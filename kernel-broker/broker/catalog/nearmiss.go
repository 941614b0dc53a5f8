// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// maxSuggestions keeps the message on one line of a terminal.
const maxSuggestions = 3

// UnknownProfileError is kb.ErrNotFound with similar names. Users see its text.
type UnknownProfileError struct {
	Name string
	Near []string // names like it, the nearest first
}

func (e *UnknownProfileError) Error() string {
	text := fmt.Sprintf("unknown kernel profile %q", e.Name)
	if len(e.Near) == 0 {
		return text
	}
	quoted := make([]string, len(e.Near))
	for i, name := range e.Near {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return text + "; did you mean " + strings.Join(quoted, " or ") + "?"
}

// Is makes errors.Is(err, kb.ErrNotFound) hold.
func (e *UnknownProfileError) Is(target error) bool { return target == kb.ErrNotFound }

// nearMisses returns the known names within a typing error of name, the nearest first.
func nearMisses(name string, known []string) []string {
	limit := max(1, len(name)/3)
	distance := map[string]int{}
	var near []string
	for _, candidate := range known {
		d := editDistance(name, candidate)
		if d > limit && !(len(name) >= 3 && strings.HasPrefix(candidate, name)) {
			continue
		}
		distance[candidate] = d
		near = append(near, candidate)
	}
	sort.Slice(near, func(i, j int) bool {
		if distance[near[i]] != distance[near[j]] {
			return distance[near[i]] < distance[near[j]]
		}
		return near[i] < near[j]
	})
	return slices.Clip(near[:min(len(near), maxSuggestions)])
}

// editDistance counts the insertions, deletions, substitutions and swaps of
// neighbours between two names. Names are ASCII and short.
func editDistance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
