// SPDX-License-Identifier: Apache-2.0

package profiling

import "slices"

// NoiseArguments are those that take what disturbs a job away from its CPUs, each
// with the symbol of the kernel's configuration without which it is ignored.
func NoiseArguments() []Argument {
	return []Argument{{"isolcpus=", "CPU_ISOLATION"}, {"nohz_full=", "NO_HZ_FULL"}, {"rcu_nocbs=", "RCU_NOCB_CPU"}}
}

// Argument of the kernel, and the symbol that it needs.
type Argument struct{ Name, Symbol string }

// Lacking are the symbols of NoiseArguments that a kernel was built without, never
// nil; built reports whether it has one.
func Lacking(built func(symbol string) bool) []string {
	lacks := []string{}
	for _, a := range NoiseArguments() {
		if !built(a.Symbol) {
			lacks = append(lacks, a.Symbol)
		}
	}
	return lacks
}

// NoiseArguments splits the arguments into those that all kernels of a run honour and those
// that one of them ignores. known is false where a node has not said how its
// kernel was built.
func (r *Result) NoiseArguments() (honoured, ignored []Argument, known bool) {
	known = len(r.Nodes) > 0
	for _, n := range r.Nodes {
		known = known && n.Kernel.Lacks != nil
	}
	for _, a := range NoiseArguments() {
		if slices.ContainsFunc(r.Nodes, func(n Node) bool { return slices.Contains(n.Kernel.Lacks, a.Symbol) }) {
			ignored = append(ignored, a)
		} else {
			honoured = append(honoured, a)
		}
	}
	return honoured, ignored, known
}
