// SPDX-License-Identifier: Apache-2.0

package runreport

import (
	"fmt"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report"
)

func (r Report) graph() report.Section {
	s := report.Section{ID: "graph", Title: "The kernel's call graph"}
	g := r.Result.CallGraph
	if g == nil {
		return s
	}
	s.Lead = r.overhead(profiling.CollectCallgraph)
	flame := report.Flame{Caption: "Where in the kernel the time went", Axis: "CPU time; below each function those that it called",
		Root: flameOf(g), Amount: report.Seconds}
	edges := report.Table{Caption: "Calls between functions", Columns: []report.Column{{Title: "From"}, {Title: "To"}, {Title: "Samples", Numeric: true}, {Title: "Time", Numeric: true}}}
	all := g.Edges()
	for _, e := range all[:min(len(all), mostFunctions)] {
		edges.Rows = append(edges.Rows, report.Row{report.Code(e.From), report.Code(e.To), countOf(e.Samples), secondsOf(e.Samples * g.PeriodNS)})
	}
	if len(all) > mostFunctions {
		edges.Note = fmt.Sprintf("The first %d of %d.", mostFunctions, len(all))
	}
	s.Components = append(s.Components, report.Facts{
		{Name: "Samples in the kernel", Text: report.Count(float64(g.Kernel))},
		{Name: "Samples in the program", Text: report.Count(float64(g.User))},
		{Name: "Lost", Text: report.Count(float64(g.Lost))},
		{Name: "One every", Text: report.Seconds(float64(g.PeriodNS) * nanosecond)},
	}, flame, flame.Table(mostFunctions), report.Folded{Title: "Edges", Components: []report.Component{edges}})
	return s
}

// flameOf puts the stacks together into a tree.
func flameOf(g *profiling.CallGraph) report.Frame {
	root := &node{}
	for _, s := range g.Stacks {
		root.add(s.Frames, float64(s.Samples)*float64(g.PeriodNS)*nanosecond)
	}
	frame := root.frame("kernel")
	return frame
}

type node struct {
	self  float64
	calls map[string]*node
	order []string
}

func (n *node) add(frames []string, cost float64) {
	if len(frames) == 0 {
		n.self += cost
		return
	}
	called := n.calls[frames[0]]
	if called == nil {
		if n.calls == nil {
			n.calls = map[string]*node{}
		}
		called = &node{}
		n.calls[frames[0]] = called
		n.order = append(n.order, frames[0])
	}
	called.add(frames[1:], cost)
}

func (n *node) frame(name string) report.Frame {
	f := report.Frame{Name: name, Self: n.self}
	for _, called := range n.order {
		f.Calls = append(f.Calls, n.calls[called].frame(called))
	}
	return f
}
