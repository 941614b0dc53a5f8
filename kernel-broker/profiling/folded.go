// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

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
