// SPDX-License-Identifier: Apache-2.0

package patterns

import (
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// in is traffic of so many calls of one size.
func in(calls, size, sequential uint64) profiling.Traffic {
	t := profiling.Traffic{Calls: calls, Bytes: calls * size, Sequential: sequential, Least: size, Most: size}
	if size < profiling.SmallBytes {
		t.Small = calls
	}
	return t
}

func TestBehaviour(t *testing.T) {
	for want, f := range map[string]profiling.File{
		OpenedOnly:    {Opens: 1},
		MappedOnly:    {Opens: 1, Maps: 2},
		OneSmallWrite: {Write: in(1, 200, 1)},
		SmallAppends:  {Write: in(1000, 180, 990)},
		SmallScatter:  {Write: in(1000, 180, 10)},
		BlockWrites:   {Write: in(1, 1<<20, 1)},
		ScatterWrites: {Write: in(100, 8192, 10)},
		SyncedWrites:  {Write: in(100, 200, 100), Syncs: 100},
		SmallReads:    {Read: in(468, 80, 468)},
		SmallLookups:  {Read: in(500, 80, 3)},
		BlockReads:    {Read: in(20, 4096, 20)},
		RandomReads:   {Read: in(20, 4096, 1)},
		ReadsWrites:   {Read: in(20, 4096, 1), Write: in(20, 4096, 1)},
	} {
		if got := Behaviour(f); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}

// What is the end of a file or an error has no place to be in order.
func TestEndOfFileIsInOrder(t *testing.T) {
	read := in(3, 4096, 3)
	read.Calls, read.Nothing = 5, 2
	if got := Behaviour(profiling.File{Read: read}); got != BlockReads {
		t.Errorf("behaviour is %q", got)
	}
}

func TestFewWritesLeaveAReader(t *testing.T) {
	f := profiling.File{Read: in(100, 4096, 100), Write: in(2, 4096, 2)}
	if got := Behaviour(f); got != BlockReads {
		t.Errorf("behaviour is %q", got)
	}
}

func TestShape(t *testing.T) {
	for name, want := range map[string]string{
		"/scratch/job.123/S_001.002.data": "/scratch/job.*/S_*.*.data",
		"results.log":                     "results.log",
		"run1/out.nc":                     "run*/out.nc",
		"/a/0f3a9c41de/x":                 "/a/*/x",
		"/a/deadbeef/x":                   "/a/deadbeef/x",
		"/":                               "/",
		"":                                "",
		"/tmp/abc123":                     "/tmp/abc*",
		"/tmp/x-550e8400-e29b-41d4-a716-446655440000.cache": "/tmp/x-*-e*b-*d*-a*-*.cache",
	} {
		if got := Shape(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func FuzzShape(f *testing.F) {
	f.Add("/scratch/job.123/S_001.002.data")
	f.Add("//0f3a9c41de//")
	f.Fuzz(func(t *testing.T, name string) {
		shape := Shape(name)
		if strings.ContainsAny(shape, "0123456789") {
			t.Errorf("%q: %q has a digit", name, shape)
		}
		if again := Shape(shape); again != shape {
			t.Errorf("%q: %q, then %q", name, shape, again)
		}
	})
}

func ocean() []profiling.File {
	var all []profiling.File
	add := func(path string, f profiling.File) {
		f.Path = path
		all = append(all, f)
	}
	for _, n := range []string{"0", "1", "2"} {
		add("/run/input_"+n+".bin", profiling.File{Read: in(18, 4096, 18)})
		for _, kind := range []string{"S", "T"} {
			add("/run/"+kind+"_00"+n+".data", profiling.File{Write: in(400, 180, 400), Seeks: 400, IdleSeeks: 400})
			add("/run/"+kind+"_00"+n+".meta", profiling.File{Write: in(1, 200, 1)})
		}
	}
	add("/run/results.log", profiling.File{Write: in(500, 78, 500)})
	add("/run/parameters", profiling.File{Read: in(468, 80, 468)})
	return all
}

func TestPatternsOfAnOcean(t *testing.T) {
	var a Accumulator
	for _, f := range ocean() {
		a.Add(f)
	}
	type row struct {
		behaviour, shape string
		files, calls     uint64
		advice           []string
	}
	want := []row{
		{SmallAppends, "/run/*.data", 6, 2400, []string{GatherWrites, NoSeeks}},
		{SmallAppends, "/run/results.log", 1, 500, []string{GatherWrites}},
		{SmallReads, "/run/parameters", 1, 468, []string{BufferReads}},
		{BlockReads, "/run/input_*.bin", 3, 54, nil},
		{OneSmallWrite, "/run/*.meta", 6, 6, nil},
	}
	got := a.Patterns()
	if len(got) != len(want) {
		t.Fatalf("patterns are %+v", got)
	}
	for i, p := range got {
		var advice []string
		for _, a := range p.Advice {
			advice = append(advice, a.What)
		}
		if w := want[i]; p.Behaviour != w.behaviour || p.Shape != w.shape || p.Files != w.files || p.Calls != w.calls ||
			!slices.Equal(advice, w.advice) {
			t.Errorf("pattern %d is %+v, want %+v", i, p, w)
		}
	}
	// 2400 writes of 180 bytes are 105.5 pages.
	if saved := got[0].Advice[0].CallsSaved; saved != 2400-106 {
		t.Errorf("gathering saves %d calls", saved)
	}
}

func TestPatternsHaveNoOrder(t *testing.T) {
	files := ocean()
	var forth, back Accumulator
	for i := range files {
		forth.Add(files[i])
		back.Add(files[len(files)-1-i])
	}
	a, b := forth.Patterns(), back.Patterns()
	if !slices.EqualFunc(a, b, func(a, b profiling.Pattern) bool {
		return a.Behaviour == b.Behaviour && a.Shape == b.Shape && a.Files == b.Files && a.Bytes == b.Bytes
	}) {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// What a program makes and then reads shows both ways of using it, and no call
// counts twice.
func TestMadeThenRead(t *testing.T) {
	var a Accumulator
	a.Add(profiling.File{Path: "/in.bin", Write: in(20, 4096, 20), Read: in(20, 4096, 20), Opens: 2, Seeks: 3})
	a.Add(profiling.File{Path: "/db", Write: in(20, 4096, 2), Read: in(20, 4096, 20)})
	want := map[string]uint64{BlockReads: 20, BlockWrites: 20, ReadsWrites: 40}
	var seeks uint64
	for _, p := range a.Patterns() {
		if p.Calls != want[p.Behaviour] || p.Files != 1 {
			t.Errorf("pattern is %+v", p)
		}
		delete(want, p.Behaviour)
		seeks += p.Seeks
	}
	if len(want) != 0 || seeks != 3 {
		t.Errorf("missing are %v, seeks are %d", want, seeks)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	var a Accumulator
	for i := range 3 * MostGroups {
		name := strings.Map(func(r rune) rune { return r - '0' + 'a' }, strings.Repeat("1", i%7+1)+strings.Repeat("2", i/7%500+1))
		a.Add(profiling.File{Path: "/" + name, Write: in(1, 10, 1)})
	}
	var files uint64
	for _, p := range a.Patterns() {
		files += p.Files
	}
	if files != 3*MostGroups || len(a.groups) > MostGroups+1 {
		t.Errorf("%d files in %d groups", files, len(a.groups))
	}
}

func TestCloneGoesItsOwnWay(t *testing.T) {
	var a Accumulator
	a.Add(profiling.File{Path: "x", Write: in(1, 10, 1)})
	b := a.Clone()
	b.Add(profiling.File{Path: "x", Write: in(1, 10, 1)})
	if got := a.Patterns()[0].Files; got != 1 {
		t.Errorf("the first has %d files", got)
	}
}

func TestAdvice(t *testing.T) {
	for what, p := range map[string]profiling.Pattern{
		FewerFiles:  {Behaviour: OneSmallWrite, Files: 508, Write: in(508, 202, 508)},
		GroupSyncs:  {Behaviour: SyncedWrites, Files: 1, Syncs: 1000, Write: in(1000, 202, 1000)},
		NoReadAhead: {Behaviour: RandomReads, Files: 1, Read: in(1000, 4096, 4)},
	} {
		got := Advise([]profiling.Pattern{p})[0].Advice
		if len(got) != 1 || got[0].What != what || got[0].Why == "" {
			t.Errorf("%+v: advice %+v", p, got)
		}
		p.Files, p.Syncs, p.Read.Calls, p.Write.Calls = 3, 3, 3, 3
		if got := Advise([]profiling.Pattern{p})[0].Advice; len(got) != 0 {
			t.Errorf("%s for three calls: %+v", what, got)
		}
	}
}
