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

// refusal is an error of the domain whose text users see as it is.
type refusal struct {
	is   error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.is }

// quotedList names at most maxSuggestions.
func quotedList(names []kb.Ref) string {
	var quoted []string
	for _, name := range names[:min(len(names), maxSuggestions)] {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	return strings.Join(quoted, " or ")
}

// unknownProfile is kb.ErrNotFound with names like it.
func unknownProfile(name string, known []string) error {
	text := fmt.Sprintf("unknown kernel profile %q", name)
	var near []kb.Ref
	for _, like := range nearMisses(name, known) {
		near = append(near, kb.Ref{Profile: like})
	}
	if len(near) > 0 {
		text += "; did you mean " + quotedList(near) + "?"
	}
	return &refusal{kb.ErrNotFound, text}
}

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
