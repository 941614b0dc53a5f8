// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

var wanted = Wanted{Collector: profiling.CollectIO, Object: "nowhere"}

func reason(t *testing.T, err error) profiling.Reason {
	t.Helper()
	var u *profiling.Unsupported
	if !errors.As(err, &u) || u.Collector != profiling.CollectIO || u.Detail == "" {
		t.Fatalf("error is %v", err)
	}
	return u.Reason
}

func TestMissingProgramsAreReported(t *testing.T) {
	if got := reason(t, wanted.Check()); got != profiling.NoPrograms {
		t.Errorf("reason is %q", got)
	}
}

func TestRefusedHasAReason(t *testing.T) {
	lack := wanted.refuse(profiling.NoBTF, "none", "")
	for want, err := range map[profiling.Reason]error{
		profiling.NoRights:    fmt.Errorf("loading: %w", unix.EPERM),
		profiling.BrokenStart: fs.ErrInvalid,
		profiling.NoBTF:       fmt.Errorf("deep: %w", lack),
	} {
		if got := reason(t, wanted.refused("loading", err)); got != want {
			t.Errorf("%v: reason %q, want %q", err, got, want)
		}
	}
}

func TestOneInPlaceOfAnother(t *testing.T) {
	w := Wanted{Instead: map[string]string{"second": "first"}}
	lack := &profiling.Unsupported{}
	for _, c := range []struct {
		lacking map[string]*profiling.Unsupported
		want    []string
	}{
		{nil, []string{"second"}},
		{map[string]*profiling.Unsupported{"second": lack}, []string{"second"}},
		{map[string]*profiling.Unsupported{"first": lack}, []string{"first"}},
		{map[string]*profiling.Unsupported{"first": lack, "second": lack}, nil}, // and their part is missing
	} {
		if got := w.needless(c.lacking); !slices.Equal(got, c.want) {
			t.Errorf("without %v: %v are needless, want %v", c.lacking, got, c.want)
		}
	}
}

// Exits are attached first: an entry without its exit would count for ever. Entries are last, when a task that is switched
// out in one is seen.
func TestOrder(t *testing.T) {
	got := order(map[string]*ebpf.Program{"a_begins": nil, "a_ends": nil, "b_begins": nil, "b_ends": nil, "c": nil})
	if want := []string{"a_ends", "b_ends", "c", "a_begins", "b_begins"}; !slices.Equal(got, want) {
		t.Errorf("order is %v", got)
	}
}

// types of a kernel that has one tracepoint and one function.
func types(t *testing.T) *btf.Spec {
	t.Helper()
	number := &btf.Int{Name: "int", Size: 4}
	proto := &btf.FuncProto{Return: number}
	builder, err := btf.NewBuilder([]btf.Type{
		&btf.Typedef{Name: "btf_trace_sys_enter", Type: number},
		&btf.Func{Name: "vfs_read", Type: proto, Linkage: btf.StaticFunc},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := builder.Spec()
	if err != nil {
		t.Skipf("this version of the library makes no types: %v", err)
	}
	return spec
}

func TestLacks(t *testing.T) {
	kernel := types(t)
	for name, c := range map[string]struct {
		program ebpf.ProgramSpec
		want    profiling.Reason
	}{
		"a tracepoint that is there": {ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sys_enter"}, ""},
		"a tracepoint that is not":   {ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "vfs_read"}, profiling.NoTracepoint},
		"a function that is there":   {ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFExit, AttachTo: "vfs_read"}, ""},
		"a function that is not":     {ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "sys_enter"}, profiling.NoFunction},
		"attached by a clock":        {ebpf.ProgramSpec{Type: ebpf.PerfEvent}, ""},
	} {
		lack := wanted.lacks(kernel, &c.program)
		if (lack == nil) != (c.want == "") || lack != nil && (lack.Reason != c.want || lack.Remedy == "") {
			t.Errorf("%s: %+v", name, lack)
		}
	}
}

func TestWithoutCopiesTheSpec(t *testing.T) {
	w := Wanted{Parts: map[string]string{"a": "x", "b": "y"}}
	spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"a": {}, "b": {}, "c": {}}}
	fewer := w.without(spec, []string{"x"})
	if len(spec.Programs) != 3 || len(fewer.Programs) != 2 || fewer.Programs["a"] != nil {
		t.Errorf("%d programs, then %d", len(spec.Programs), len(fewer.Programs))
	}
}
