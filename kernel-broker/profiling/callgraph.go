// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// CallGraph is where in the kernel a job's time went: stacks, sampled at equal
// intervals of each CPU's clock. All samples times the period are the job's CPU
// time, unless the machine was a virtual one and stood still for a while: then
// ticks are missing, and shares are what is left to rely on. Of two nodes whose
// periods differ the coarser one stands.
type CallGraph struct {
	// PeriodNS is the time between two samples of one CPU.
	PeriodNS uint64 `json:"period_ns" sum:"max"`
	// Kernel samples are in Stacks; User samples found the program itself.
	Kernel uint64 `json:"kernel"`
	User   uint64 `json:"user"`
	// Lost samples found no room for their stack.
	Lost   uint64  `json:"lost"`
	Stacks []Stack `json:"stacks"`
}

// Stack is one way through the kernel, the outermost function first.
type Stack struct {
	Frames  []string `json:"frames" sum:"key"`
	Samples uint64   `json:"samples"`
}

// Function is one, on all ways together.
type Function struct {
	Name string
	// Self are samples in it, Total those in it or in what it called; a
	// function that calls itself counts once.
	Self, Total uint64
}

// Edge is one function calling another.
type Edge struct {
	From, To string
	// Samples in which the call was under way, once for each sample.
	Samples uint64
}

// Sort puts the most frequent stacks first.
func (g *CallGraph) Sort() {
	slices.SortFunc(g.Stacks, func(a, b Stack) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), slices.Compare(a.Frames, b.Frames))
	})
}

// Bound keeps the most frequent stacks; samples of the others count as lost.
func (g *CallGraph) Bound(most int) {
	g.Stacks = slices.Clone(g.Stacks)
	g.Sort()
	kept, lost := cut(g.Stacks, most, func(s Stack) uint64 { return s.Samples })
	g.Stacks, g.Kernel, g.Lost = kept, g.Kernel-min(lost, g.Kernel), g.Lost+lost
}

// cut keeps the first ones of a list, and adds up what the others counted.
func cut[T any](list []T, most int, count func(T) uint64) (kept []T, lost uint64) {
	if len(list) <= most {
		return list, 0
	}
	for _, one := range list[most:] {
		lost += count(one)
	}
	return list[:most:most], lost
}

// Functions with their own and their children's samples, the costly first.
func (g *CallGraph) Functions() []Function {
	self := map[string]uint64{}
	for _, s := range g.Stacks {
		if n := len(s.Frames); n > 0 {
			self[s.Frames[n-1]] += s.Samples
		}
	}
	total := perStack(g, 0, func(frames []string, i int) string { return frames[i] })
	all := make([]Function, 0, len(total))
	for name, n := range total {
		all = append(all, Function{name, self[name], n})
	}
	slices.SortFunc(all, func(a, b Function) int {
		return cmp.Or(cmp.Compare(b.Self, a.Self), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Edges between functions, the costly first.
func (g *CallGraph) Edges() []Edge {
	var all []Edge
	for e, n := range perStack(g, 1, func(frames []string, i int) Edge { return Edge{From: frames[i-1], To: frames[i]} }) {
		e.Samples = n
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return all
}

// perStack adds up the samples of what is in stacks, once for each stack.
func perStack[K comparable](g *CallGraph, first int, of func(frames []string, i int) K) map[K]uint64 {
	sums := map[K]uint64{}
	for _, s := range g.Stacks {
		seen := map[K]bool{}
		for i := first; i < len(s.Frames); i++ {
			if key := of(s.Frames, i); !seen[key] {
				sums[key] += s.Samples
				seen[key] = true
			}
		}
	}
	return sums
}

// WriteFolded writes a stack a line, "outer;inner 12", which flame graph
// programs read.
func (g *CallGraph) WriteFolded(to io.Writer) error {
	for _, s := range g.Stacks {
		if _, err := fmt.Fprintf(to, "%s %d\n", strings.Join(s.Frames, ";"), s.Samples); err != nil {
			return fmt.Errorf("folded stacks: %w", err)
		}
	}
	return nil
}

// WriteDOT draws the graph for Graphviz: each function with its own and its
// total share, each edge with its samples. Functions with less than the given
// share of all kernel samples are left out, with their edges.
func (g *CallGraph) WriteDOT(to io.Writer, least float64) error {
	out := bufio.NewWriter(to)
	kernel := max(g.Kernel, 1)
	drawn := map[string]bool{}
	fmt.Fprintln(out, "digraph kernel {\n\tnode [shape=box, fontname=\"sans-serif\"];")
	for _, f := range g.Functions() {
		share := float64(f.Total) / float64(kernel)
		if share < least {
			continue
		}
		drawn[f.Name] = true
		fmt.Fprintf(out, "\t%s [label=%s];\n", quoted(f.Name), quoted(fmt.Sprintf("%s\nself %.1f %%, all %.1f %%",
			f.Name, 100*float64(f.Self)/float64(kernel), 100*share)))
	}
	for _, e := range g.Edges() {
		if drawn[e.From] && drawn[e.To] {
			fmt.Fprintf(out, "\t%s -> %s [label=\"%d\", penwidth=%.2f];\n",
				quoted(e.From), quoted(e.To), e.Samples, 1+4*float64(e.Samples)/float64(kernel))
		}
	}
	fmt.Fprintln(out, "}")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("call graph: %w", err)
	}
	return nil
}

func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
