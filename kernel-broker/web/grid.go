// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// cell is a node in the grid. Its class has the kernel's colour and the state's shape; the label says both in words.
type cell struct{ Name, Class, Label string }

// state of a node as the grid tells it by a shape.
type state string

// The states. Each but steady has a shape that is known without its colour.
const (
	stateSteady   state = "steady"
	stateLoading  state = "loading"
	stateBooting  state = "booting"
	stateFailed   state = "failed"
	stateUnproven state = "unproven"
	stateAway     state = "away"
)

// states in the order of the legend, with what each means.
var states = []struct {
	State state
	Means string
}{
	{stateSteady, "runs its kernel"}, {stateLoading, "loads a kernel"}, {stateBooting, "boots"}, {stateAway, "agent is away"},
	{stateUnproven, "kernel not proven"}, {stateFailed, "failed"},
}

func stateOf(n *api.Node) state {
	switch n.GetPhase() {
	case api.NodePhase_NODE_PHASE_LOADING:
		return stateLoading
	case api.NodePhase_NODE_PHASE_BOOTING:
		return stateBooting
	case api.NodePhase_NODE_PHASE_FAILED:
		return stateFailed
	case api.NodePhase_NODE_PHASE_UNPROVEN:
		return stateUnproven
	}
	if !n.GetConnected() {
		return stateAway
	}
	return stateSteady
}

// runs is what a node runs, in words.
func runs(n *api.Node) string {
	if n.GetRunningProfile() == "" {
		return "no proven kernel"
	}
	return kernelRef(n.GetRunningProfile(), n.GetRunningVersion())
}

// moving reports whether a node is on its way to another kernel.
func moving(n *api.Node) bool {
	is := stateOf(n)
	return is == stateLoading || is == stateBooting
}

// colour of a node is that of the kernel that it runs, or is on its way to.
func (p *palette) colour(n *api.Node) (colour int, kernel string) {
	if moving(n) {
		return p.of(n.GetDesiredProfile(), n.GetDesiredVersion()), kernelRef(n.GetDesiredProfile(), n.GetDesiredVersion())
	}
	return p.of(n.GetRunningProfile(), n.GetRunningVersion()), runs(n)
}

// cellOf a node.
func (p *palette) cellOf(n *api.Node) cell {
	is := stateOf(n)
	label := n.GetName() + ": " + runs(n)
	switch {
	case moving(n):
		label += fmt.Sprintf(", %s %s", is, kernelRef(n.GetDesiredProfile(), n.GetDesiredVersion()))
	case is != stateSteady:
		label += ", " + string(is)
	}
	if n.GetJobId() != 0 {
		label += fmt.Sprintf(", job %d", n.GetJobId())
	}
	if n.GetCause() != "" {
		label += ". " + n.GetCause()
	}
	colour, _ := p.colour(n)
	return cell{n.GetName(), fmt.Sprintf("k%d %s", colour, is), label}
}

// Colours of the grid: 0 is for nodes without a proven kernel, 1 for stock, the last for kernels that have none of
// their own.
const (
	colourNone  = 0
	colourStock = 1
	colourOther = 8
)

// palette gives kernels their colours. A kernel keeps its colour while the page is served.
type palette struct {
	mu   sync.Mutex
	have map[string]int
}

func (p *palette) of(profile string, version uint32) int {
	switch profile {
	case "":
		return colourNone
	case "stock":
		return colourStock
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ref := kernelRef(profile, version)
	if c, has := p.have[ref]; has {
		return c
	}
	if len(p.have) >= colourOther-colourStock-1 {
		return colourOther
	}
	if p.have == nil {
		p.have = map[string]int{}
	}
	p.have[ref] = colourStock + 1 + len(p.have)
	return p.have[ref]
}

// kernelCount is a line of the legend.
type kernelCount struct {
	Colour int
	Name   string
	Nodes  int
}

// stateCount is a shape of the legend.
type stateCount struct {
	State state
	Means string
	Nodes int
}

// legend counts the nodes by kernel, the most first, and by state.
func (p *palette) legend(nodes []*api.Node) (kernels []kernelCount, shapes []stateCount) {
	byKernel, byState := map[kernelCount]int{}, map[state]int{}
	for _, n := range nodes {
		colour, name := p.colour(n)
		if colour == colourOther {
			name = "other kernels"
		}
		byKernel[kernelCount{Colour: colour, Name: name}]++
		byState[stateOf(n)]++
	}
	for k, n := range byKernel {
		k.Nodes = n
		kernels = append(kernels, k)
	}
	slices.SortFunc(kernels, func(a, b kernelCount) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range states {
		if byState[s.State] > 0 {
			shapes = append(shapes, stateCount{s.State, s.Means, byState[s.State]})
		}
	}
	return kernels, shapes
}

// namesOf tells grids of other nodes apart.
func namesOf(cells []cell) string {
	sum := fnv.New64a()
	for _, c := range cells {
		_, _ = sum.Write([]byte(c.Name + "\n")) // it never fails
	}
	return strconv.FormatUint(sum.Sum64(), 36)
}

// nodePhase is the word that users read.
func nodePhase(n *api.Node) string { return convert.Word(n.GetPhase()) }
