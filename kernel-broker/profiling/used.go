// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"maps"
	"slices"
	"strings"
)

// Used is what of its kernel a job was seen to use, by the names that the kernel
// itself has for it; each list is sorted and without repeats.
type Used struct {
	// Calls are names of system calls; ForeignCalls may be one of them.
	Calls []string
	// Functions were sampled with what they called, or their calls counted, without
	// what the compiler adds to a name for a part of a function.
	Functions []string
	// FileSystems are types of file systems on which the job had files.
	FileSystems []string
}

// Any tells whether the job was seen to run anything. File systems alone are a
// hint and no trace.
func (u Used) Any() bool { return len(u.Calls)+len(u.Functions) > 0 }

// ours are beginnings of names of what the collectors themselves have the
// kernel do: what such a function calls is not the job's.
var ours = []string{"bpf_prog_", "__bpf_prog_", "bpf_trace_run", "__bpf_trace_"}

// Used sums up the result. Page faults are no call that a kernel could lack.
func (r *Result) Used() Used {
	calls, functions, systems := map[string]bool{}, map[string]bool{}, map[string]bool{}
	if r.Syscalls != nil {
		for _, c := range r.Syscalls.Calls {
			if c.Count > 0 && c.Name != PageFault {
				calls[c.Name] = true
			}
		}
	}
	if r.CallGraph != nil {
		for _, stack := range r.CallGraph.Stacks {
			for _, name := range ownFrames(stack.Frames) {
				functions[name] = true
			}
		}
	}
	if r.CallCounts != nil {
		for _, edge := range r.CallCounts.Edges {
			for _, name := range ownFrames([]string{edge.From, edge.To}) {
				functions[name] = true
			}
		}
	}
	if r.IO != nil {
		for _, f := range r.IO.Files {
			// A type without a name is its number.
			if f.FileSystem != "" && !strings.HasPrefix(f.FileSystem, "0x") {
				systems[f.FileSystem] = true
			}
		}
	}
	sorted := func(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
	return Used{Calls: sorted(calls), Functions: sorted(functions), FileSystems: sorted(systems)}
}

// ownFrames are those up to where the stack is the collectors', with names that
// stand for whole functions. An address that no symbol covers has no name.
func ownFrames(frames []string) []string {
	var own []string
	for _, frame := range frames {
		if slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(frame, prefix) }) {
			break
		}
		if name, _, _ := strings.Cut(frame, "."); name != "" && !strings.HasPrefix(name, "0x") {
			own = append(own, name)
		}
	}
	return own
}

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
