// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Step is one piece of work.
type Step struct {
	// Name within the graph.
	Name string
	// Kind is what results are stored and shared under: two steps of one kind
	// with the same inputs are the same work, whatever their names are and in
	// whichever graph they stand. Empty means Name.
	Kind string
	// Inputs are values and digests by name: everything that the result
	// depends on, besides the results of other steps.
	Inputs map[string]string
	// Needs are the steps whose results this one reads: what it calls each,
	// and the step's name.
	Needs map[string]string
	// After are steps that must have been done before this one begins, though
	// it reads nothing of theirs.
	After []string
	// Run fills the folder of the work. It must end soon after ctx does.
	Run func(ctx context.Context, work *Work) error
	// Effect marks a step that is done for what it changes elsewhere, each
	// time and always in the process of the run. It leaves no result.
	Effect bool
	// Resources that an executor may ask for.
	Resources Resources
}

// Resources of a step; zero leaves the choice to the executor.
type Resources struct {
	CPUs      int
	MemoryMiB int
	Limit     time.Duration
}

// before are the steps that must be done before this one, sorted.
func (s *Step) before() []string {
	return slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(s.After), maps.Values(s.Needs))))
}

// Work is what a step is handed, and all that it may use.
type Work struct {
	// Dir is empty, and becomes the result.
	Dir string
	// Log takes the step's output. It is safe for concurrent use.
	Log   io.Writer
	needs map[string]Result
	units func(done, total int)
}

// Need is the folder with the files of a step that this one needs, by the name
// that Step.Needs gives it. Asking for another one is a mistake in the step.
func (w *Work) Need(as string) string {
	result, has := w.needs[as]
	if !has {
		panic(fmt.Sprintf("the step did not say that it needs %q", as))
	}
	return result.Files()
}

// Has reports whether the step needs something of that name.
func (w *Work) Has(as string) bool {
	_, has := w.needs[as]
	return has
}

// Units reports how far the step is; total 0 if unknown.
func (w *Work) Units(done, total int) {
	if w.units != nil {
		w.units(done, total)
	}
}

// Say writes a line to the step's log.
func (w *Work) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(w.Log, format+"\n", args...) // the log itself keeps the error
}

// Graph is a list of steps, each after those it needs.
type Graph struct {
	steps []Step
}

var stepName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

// New checks the steps. It reports every mistake it finds.
func New(steps ...Step) (*Graph, error) {
	g := &Graph{}
	var wrong []error
	for _, step := range steps {
		step.Kind = cmp.Or(step.Kind, step.Name)
		_, twice := g.Step(step.Name)
		switch {
		case !stepName.MatchString(step.Name) || !stepName.MatchString(step.Kind):
			wrong = append(wrong, fmt.Errorf("step %q of kind %q: use lower-case letters, digits, dot, dash and underscore", step.Name, step.Kind))
		case twice:
			wrong = append(wrong, fmt.Errorf("step %q is there twice", step.Name))
		case step.Run == nil:
			wrong = append(wrong, fmt.Errorf("step %q does nothing", step.Name))
		}
		for _, name := range step.before() {
			need, has := g.Step(name)
			switch {
			case !has:
				wrong = append(wrong, fmt.Errorf("step %q needs %q, which does not stand before it", step.Name, name))
			case need.Effect:
				wrong = append(wrong, fmt.Errorf("step %q needs %q, which has no result", step.Name, name))
			}
		}
		g.steps = append(g.steps, step)
	}
	return g, errors.Join(wrong...)
}

func (g *Graph) Step(name string) (Step, bool) {
	i := slices.IndexFunc(g.steps, func(s Step) bool { return s.Name == name })
	if i < 0 {
		return Step{}, false
	}
	return g.steps[i], true
}

// Names of all steps, each after those it needs.
func (g *Graph) Names() []string {
	var names []string
	for _, step := range g.steps {
		names = append(names, step.Name)
	}
	return names
}

// Needed are the targets and all that they need, in order; no target asks for
// all steps.
func (g *Graph) Needed(targets ...string) ([]Step, error) {
	if len(targets) == 0 {
		return g.steps, nil
	}
	wanted := map[string]bool{}
	for _, name := range targets {
		if _, has := g.Step(name); !has {
			return nil, fmt.Errorf("no step %q, there are %s", name, strings.Join(g.Names(), ", "))
		}
		wanted[name] = true
	}
	var steps []Step
	for _, step := range slices.Backward(g.steps) {
		if wanted[step.Name] {
			steps = append(steps, step)
			for _, need := range step.before() {
				wanted[need] = true
			}
		}
	}
	slices.Reverse(steps)
	return steps, nil
}
