// SPDX-License-Identifier: Apache-2.0

// Package similar finds the names that somebody may have meant who typed another one.
package similar

import (
	"cmp"
	"slices"
	"strings"
)

// Most names are suggested, so that a message stays on one line of a terminal.
const Most = 3

// Names returns the known names within a typing error of name, the nearest first, at most Most of them.
func Names(name string, known []string) []string {
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
	slices.SortFunc(near, func(a, b string) int { return cmp.Or(distance[a]-distance[b], strings.Compare(a, b)) })
	return slices.Clip(near[:min(len(near), Most)])
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
