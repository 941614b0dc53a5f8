// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestUsed(t *testing.T) {
	stack := func(frames ...string) *CallGraph { return &CallGraph{Stacks: []Stack{{Frames: frames, Samples: 1}}} }
	for name, c := range map[string]struct {
		result Result
		want   Used
	}{
		"nothing":    {Result{}, Used{}},
		"noise only": {Result{Noise: &Noise{}}, Used{}},
		"calls": {Result{Syscalls: &Syscalls{Calls: []Syscall{{Name: "write", Count: 3}, {Name: "io_setup", Count: 1, Failed: 1}, {Name: "read"}}}},
			Used{Calls: []string{"io_setup", "write"}}},
		"page faults are no call":  {Result{Syscalls: &Syscalls{Calls: []Syscall{{Name: PageFault, Count: 3}}}}, Used{}},
		"calls of 32-bit programs": {Result{Syscalls: &Syscalls{Calls: []Syscall{{Name: ForeignCalls, Count: 3}}}}, Used{Calls: []string{ForeignCalls}}},
		"with the children": {Result{CallGraph: stack("do_syscall_64", "vfs_write", "vfs_write", "ext4_da_write_begin")},
			Used{Functions: []string{"do_syscall_64", "ext4_da_write_begin", "vfs_write"}}},
		"parts of functions": {Result{CallGraph: stack("a.isra.0", "b.constprop.0.cold", ".text", "0xffffffff81000000")}, Used{Functions: []string{"a", "b"}}},
		"not what looks at the job": {Result{CallGraph: stack("vfs_write", "bpf_trampoline_64", "bpf_prog_0a1b_written", "htab_map_lookup_elem")},
			Used{Functions: []string{"bpf_trampoline_64", "vfs_write"}}},
		"nor a tracepoint's programs": {Result{CallGraph: stack("syscall_trace_enter", "__traceiter_sys_enter", "__bpf_trace_sys_enter", "bpf_trace_run2")},
			Used{Functions: []string{"__traceiter_sys_enter", "syscall_trace_enter"}}},
		"counted calls": {Result{CallCounts: &CallCounts{Edges: []CallCount{
			{From: "ksys_write", To: "vfs_write.part.0", Calls: 3}, {From: "bpf_prog_0a1b_written", To: "htab_map_lookup_elem", Calls: 3}}}},
			Used{Functions: []string{"ksys_write", "vfs_write"}}},
		"file systems": {Result{IO: &IO{Files: []File{{FileSystem: "nfs"}, {FileSystem: "ext4"}, {FileSystem: "nfs"}, {FileSystem: "0x1234"}, {}}}},
			Used{FileSystems: []string{"ext4", "nfs"}}},
	} {
		if got := c.result.Used(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if any := c.result.Used().Any(); any != (len(c.want.Calls)+len(c.want.Functions) > 0) {
			t.Errorf("%s: a trace: %v", name, any)
		}
	}
}

// What two nodes used together is what either of them used.
func TestUsedAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(node string) Result {
			return Result{Format: Format, Syscalls: drawSyscalls(t, node), CallGraph: drawGraph(t)}
		}
		a, b := draw("n1"), draw("n2")
		both, err := Merge(a, b)
		if err != nil {
			t.Fatal(err)
		}
		either := map[string]bool{}
		for _, one := range []Used{a.Used(), b.Used()} {
			for _, name := range append(one.Calls, one.Functions...) {
				either[name] = true
			}
		}
		sum := both.Used()
		for _, name := range append(sum.Calls, sum.Functions...) {
			if !either[name] {
				t.Errorf("nobody used %s", name)
			}
			delete(either, name)
		}
		if len(either) > 0 {
			t.Errorf("lost %v", either)
		}
	})
}
