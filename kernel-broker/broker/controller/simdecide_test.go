// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"reflect"
	"slices"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
)

// decide is the controller's on what changed, and checks that to decide on everything would change nothing more, but what is
// awake and waits for the next second or poll.
func (b *simBroker) decide(in plan.Input) plan.Output {
	scope, tokens := plan.Everything(in), b.tokens
	if b.before == nil {
		b.marks = newMarks()
	} else {
		b.marks.scope.Add(changedSince(*b.before, in))
		b.marks.all = false
		scope, _ = b.marks.take(&records{nodes: in.Nodes, allocs: in.Allocations, onNode: onNode(in.Allocations)}, in.Now, in.Slurm.At)
	}
	b.scoped, b.recorded = b.scoped+len(scope.Nodes), b.recorded+len(in.Nodes)
	everything, asleep := in, plan.NewScope()
	all := plan.Decide(everything)
	in.Scope, b.tokens = &scope, tokens
	out := plan.Decide(in)
	asleep.Add(b.marks.awake)
	asleep.Remove(scope)
	asleep.Close(in.Nodes, in.Allocations, plan.JobsOf(in.Allocations)) // what becomes of them changes others
	b.marks.decided(scope, out)
	b.before = &in
	b.same(scope, asleep, out, all)
	return out
}

func onNode(allocs map[kb.JobID]*kb.Allocation) map[string][]kb.JobID {
	index := map[string][]kb.JobID{}
	for id, a := range allocs {
		for _, name := range a.Had() {
			index[name] = append(index[name], id)
		}
	}
	return index
}

func (b *simBroker) same(scope, asleep plan.Scope, out, all plan.Output) {
	if len(asleep.Nodes)+len(asleep.Jobs) > 0 {
		all = without(all, asleep) // tokens and the nodes of a command differ with it
		out = without(out, asleep)
		names := func(o plan.Output) (list []string) {
			for _, n := range o.Nodes {
				list = append(list, n.Name)
			}
			for _, a := range o.Allocations {
				list = append(list, a.ID.String())
			}
			return list
		}
		if !slices.Equal(names(out), names(all)) {
			b.w.fail("decided on what changed, %v, with %v asleep: %q change; on everything: %q", scope, asleep, names(out), names(all))
		}
		return
	}
	keys := func(actions []plan.Action) (list []string) {
		for _, a := range actions {
			list = append(list, a.Key())
		}
		slices.Sort(list)
		return list
	}
	if !reflect.DeepEqual(out.Nodes, all.Nodes) || !reflect.DeepEqual(out.Allocations, all.Allocations) || !slices.Equal(keys(out.Actions), keys(all.Actions)) {
		b.w.fail("decided on what changed, %v: %d nodes, %d allocations, actions %q; on everything: %d nodes, %d allocations, actions %q",
			scope, len(out.Nodes), len(out.Allocations), keys(out.Actions), len(all.Nodes), len(all.Allocations), keys(all.Actions))
	}
	for name, kept := range all.Kept {
		if have, answered := out.Kept[name]; have != kept || !answered {
			b.w.fail("the epilog on %s is answered %t, %t", name, have, answered)
		}
	}
}

// without leaves out the records that sleep.
func without(out plan.Output, asleep plan.Scope) plan.Output {
	out.Nodes = slices.DeleteFunc(slices.Clone(out.Nodes), func(n *kb.Node) bool { return asleep.Nodes[n.Name] })
	out.Allocations = slices.DeleteFunc(slices.Clone(out.Allocations), func(a *kb.Allocation) bool { return asleep.Jobs[a.ID] })
	return out
}
