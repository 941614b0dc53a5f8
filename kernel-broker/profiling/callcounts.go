// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// CallCounts is how often the kernel's functions called each other for a job:
// counted, where CallGraph is sampled. What an interrupt called while the job
// had the CPU is among it.
type CallCounts struct {
	// Calls are those of Edges; Lost ones found no room for their edge.
	Calls uint64      `json:"calls"`
	Lost  uint64      `json:"lost"`
	Edges []CallCount `json:"edges"`
}

// CallCount is one function calling another. A function that the compiler put
// into its caller is none of its own.
type CallCount struct {
	From  string `json:"from" sum:"key"`
	To    string `json:"to" sum:"key"`
	Calls uint64 `json:"calls"`
}

// Called is a function, and how often it was called by all others together.
type Called struct {
	Name  string
	Calls uint64
}

// Sort puts the most frequent calls first.
func (c *CallCounts) Sort() {
	slices.SortFunc(c.Edges, func(a, b CallCount) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// Bound keeps the most frequent edges; calls of the others count as lost.
func (c *CallCounts) Bound(most int) {
	c.Edges = slices.Clone(c.Edges)
	c.Sort()
	kept, lost := cut(c.Edges, most, func(e CallCount) uint64 { return e.Calls })
	c.Edges, c.Calls, c.Lost = kept, c.Calls-min(lost, c.Calls), c.Lost+lost
}

// Functions that were called, the most frequent first.
func (c *CallCounts) Functions() []Called {
	calls := map[string]uint64{}
	for _, e := range c.Edges {
		calls[e.To] += e.Calls
	}
	all := make([]Called, 0, len(calls))
	for name, n := range calls {
		all = append(all, Called{name, n})
	}
	slices.SortFunc(all, func(a, b Called) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// WriteDOT draws the graph for Graphviz: each edge with its calls. Edges with
// less than the given share of all calls are left out.
func (c *CallCounts) WriteDOT(to io.Writer, least float64) error {
	out := bufio.NewWriter(to)
	all := float64(max(c.Calls, 1))
	fmt.Fprintln(out, "digraph kernel {\n\tnode [shape=box, fontname=\"sans-serif\"];")
	for _, e := range c.Edges {
		if share := float64(e.Calls) / all; share >= least {
			fmt.Fprintf(out, "\t%s -> %s [label=\"%d\", penwidth=%.2f];\n", quoted(e.From), quoted(e.To), e.Calls, 1+4*share)
		}
	}
	fmt.Fprintln(out, "}")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("call counts: %w", err)
	}
	return nil
}
