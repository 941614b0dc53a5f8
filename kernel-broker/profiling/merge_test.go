// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
)

// Generators make results as collectors do: histograms without zeros at the
// end, parts that are not zero, lists in order.
func histogram() *rapid.Generator[Histogram] {
	return rapid.Custom(func(t *rapid.T) Histogram {
		var h Histogram
		for _, v := range rapid.SliceOfN(rapid.Uint64(), 0, 5).Draw(t, "values") {
			h.Add(v)
		}
		return h
	})
}

func small() *rapid.Generator[uint64] { return rapid.Uint64Range(0, 1<<40) }

func traffic(t *rapid.T, name string) Traffic {
	return Traffic{
		Calls: small().Draw(t, name), Bytes: small().Draw(t, name), Failed: small().Draw(t, name),
		Nothing: small().Draw(t, name), Cut: small().Draw(t, name), Small: small().Draw(t, name),
		Sequential: small().Draw(t, name), Least: small().Draw(t, name), Most: small().Draw(t, name),
		Sizes: histogram().Draw(t, name),
	}
}

func drawSyscalls(t *rapid.T, node string) *Syscalls {
	s := &Syscalls{LostAway: small().Draw(t, "lost"), NotListed: Part{small().Draw(t, "n"), small().Draw(t, "ns")}}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"read", "write", "close"}), 0, 3, rapid.ID[string]).Draw(t, "names") {
		c := Syscall{
			Name: name, Count: small().Draw(t, "count"), Failed: small().Draw(t, "failed"), NS: small().Draw(t, "ns"),
			MostNS: small().Draw(t, "most"), Times: histogram().Draw(t, "times"), Split: map[Cause]Part{},
		}
		for _, cause := range rapid.SliceOfDistinct(rapid.SampledFrom(Causes()), rapid.ID[Cause]).Draw(t, "causes") {
			c.Split[cause] = Part{Count: small().Draw(t, "n"), NS: 1 + small().Draw(t, "ns")}
		}
		s.Calls = append(s.Calls, c)
		s.Processes = append(s.Processes, ProcessCalls{Node: node, PID: rapid.Uint32().Draw(t, "pid"), Name: name, Count: c.Count})
		for tid := range uint32(rapid.IntRange(0, MostSlow).Draw(t, "slow")) {
			// Few times, so that some are alike.
			s.Slowest = append(s.Slowest, SlowCall{Name: name, Node: node, TID: tid, NS: rapid.Uint64Range(1, 20).Draw(t, "ns"), Split: c.Split})
		}
	}
	s.Sort()
	return s
}

func drawIO(t *rapid.T, node string) *IO {
	io := &IO{FilesLeftOut: small().Draw(t, "left out"), Overflow: Total{Kind: RegularFiles, Read: traffic(t, "overflow")}}
	for _, kind := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{RegularFiles, "pipe"}), 0, 2, rapid.ID[string]).Draw(t, "kinds") {
		io.AddTotal(Total{Kind: kind, Read: traffic(t, "read"), Write: traffic(t, "write")})
	}
	for _, shape := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"/a*", "/b*"}), 0, 2, rapid.ID[string]).Draw(t, "shapes") {
		io.Patterns = append(io.Patterns, Pattern{
			Behaviour: "x", Shape: shape, Files: small().Draw(t, "files"), Calls: small().Draw(t, "calls"), Read: traffic(t, "read"),
		})
		io.Files = append(io.Files, File{Node: node, Path: shape, Inode: rapid.Uint64().Draw(t, "inode"), Read: traffic(t, "read")})
	}
	io.Sort()
	return io
}

func drawGraph(t *rapid.T) *CallGraph {
	g := &CallGraph{PeriodNS: 2004008, User: small().Draw(t, "user"), Lost: small().Draw(t, "lost")}
	for _, frames := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}, {"d"}} {
		if n := rapid.Uint64Range(0, 9).Draw(t, "samples"); n > 0 {
			g.Stacks = append(g.Stacks, Stack{Frames: frames, Samples: n})
			g.Kernel += n
		}
	}
	g.Sort()
	return g
}

func drawNoise(t *rapid.T, node string) *Noise {
	n := &Noise{Method: "bpf"}
	for cpu := range uint32(rapid.IntRange(0, 2).Draw(t, "cpus")) {
		c := CPUNoise{Node: node, CPU: cpu, WantedNS: small().Draw(t, "wanted"), LostNS: small().Draw(t, "lost")}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"timer", "rcu"}), 0, 2, rapid.ID[string]).Draw(t, "sources") {
			c.Sources = append(c.Sources, NoiseSource{
				Kind: NoiseSoftIRQ, Name: name, Count: small().Draw(t, "count"), NS: small().Draw(t, "ns"),
				MostNS: small().Draw(t, "most"), At: time.Unix(int64(rapid.Uint32().Draw(t, "at")), 0).UTC(), Times: histogram().Draw(t, "times"),
			})
		}
		SortSources(c.Sources)
		n.CPUs = append(n.CPUs, c)
	}
	return n
}

func drawCalls(t *rapid.T) *CallCounts {
	c := &CallCounts{Lost: small().Draw(t, "lost")}
	for _, to := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"vfs_read", "vfs_write"}), rapid.ID[string]).Draw(t, "calls") {
		edge := CallCount{From: "do_syscall_64", To: to, Calls: small().Draw(t, "of each")}
		c.Edges, c.Calls = append(c.Edges, edge), c.Calls+edge.Calls
	}
	c.Sort()
	return c
}

func drawResult(node string) *rapid.Generator[Result] {
	return rapid.Custom(func(t *rapid.T) Result {
		r := Result{Format: Format, Job: 7, Nodes: []Node{{Name: node, JobNS: small().Draw(t, "job")}}}
		for _, c := range rapid.SliceOfDistinct(rapid.SampledFrom(Collectors()), rapid.ID[Collector]).Draw(t, "collectors") {
			r.Collectors = append(r.Collectors, c)
			switch c {
			case CollectIO:
				r.IO = drawIO(t, node)
			case CollectSyscalls:
				r.Syscalls = drawSyscalls(t, node)
			case CollectCallgraph:
				r.CallGraph = drawGraph(t)
			case CollectNoise:
				r.Noise = drawNoise(t, node)
			case CollectPGO:
				r.PGO = &PGO{Archives: []Archive{{Node: node, Name: "x"}}}
			case CollectCallCounts:
				r.CallCounts = drawCalls(t)
			}
			r.Overhead = append(r.Overhead, Overhead{Node: node, Collector: c, SpentNS: small().Draw(t, "spent")})
			seen := small().Draw(t, "seen")
			r.Cover(Coverage{
				Node: node, Collector: c, Exact: rapid.Bool().Draw(t, "exact"), SpanNS: small().Draw(t, "span"),
				Events: seen, Estimated: seen + small().Draw(t, "unseen"),
			})
		}
		if rapid.Bool().Draw(t, "partial") {
			r.Partial = append(r.Partial, Partial{Node: node, Why: "killed"})
		}
		r.sort()
		return r
	})
}

func merged(t *rapid.T, results ...Result) Result {
	sum, err := Merge(results...)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func same(t *rapid.T, what string, a, b Result) {
	left, err := a.JSON()
	if err != nil {
		t.Fatal(err)
	}
	right, err := b.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if string(left) != string(right) {
		t.Fatalf("%s:\n%s\n%s", what, left, right)
	}
}

func TestMergeHasNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawResult("n1").Draw(t, "a"), drawResult("n2").Draw(t, "b"), drawResult("n3").Draw(t, "c")
		all := merged(t, a, b, c)
		same(t, "another order", all, merged(t, c, a, b))
		same(t, "in two steps", all, merged(t, a, merged(t, b, c)))
	})
}

// The quick way to add up traffic is the way of its tags.
func TestTrafficAddsUpByItsTags(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := traffic(t, "a"), traffic(t, "b")
		if quick, tags := a.Plus(b), addup.Plus(a, b); !reflect.DeepEqual(quick, tags) {
			t.Fatalf("%+v and not %+v", quick, tags)
		}
	})
}

func TestMergeLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := []Result{drawResult("n1").Draw(t, "a"), drawResult("n2").Draw(t, "b")}
		sum := merged(t, parts...)
		var calls, stacks, wanted, left uint64
		count := func(r Result, sign uint64) {
			if r.Syscalls != nil {
				calls += sign * r.Syscalls.Named("read").Count
			}
			if r.CallGraph != nil {
				for _, s := range r.CallGraph.Stacks {
					stacks += sign * s.Samples
				}
			}
			if r.CallCounts != nil {
				for _, e := range r.CallCounts.Edges {
					calls += sign * e.Calls
				}
			}
			if r.Noise != nil {
				for _, c := range r.Noise.CPUs {
					wanted += sign * c.WantedNS
				}
			}
			if r.IO != nil {
				left += sign * (r.IO.FilesLeftOut + r.IO.Total(RegularFiles).Read.Bytes)
			}
		}
		for _, p := range parts {
			count(p, 1)
		}
		count(sum, ^uint64(0))
		if calls != 0 || stacks != 0 || wanted != 0 || left != 0 {
			t.Fatalf("lost: %d calls, %d samples, %d ns, %d bytes", calls, stacks, wanted, left)
		}
		if slow := parts[0].Syscalls; slow != nil && parts[1].Syscalls != nil {
			keepsTheSlowest(t, slices.Concat(slow.Slowest, parts[1].Syscalls.Slowest), sum.Syscalls.Slowest)
		}
		if len(sum.Partial) != len(parts[0].Partial)+len(parts[1].Partial) {
			t.Fatalf("partial is %+v", sum.Partial)
		}
	})
}

// keepsTheSlowest: of each name there are as many as may be, and none that was
// left out took longer.
func keepsTheSlowest(t *rapid.T, of, kept []SlowCall) {
	for _, name := range []string{"read", "write", "close"} {
		times := func(all []SlowCall) (ns []uint64) {
			for _, c := range all {
				if c.Name == name {
					ns = append(ns, c.NS)
				}
			}
			slices.Sort(ns)
			slices.Reverse(ns)
			return ns
		}
		want := times(of)
		if want = want[:min(len(want), MostSlow)]; !slices.Equal(times(kept), want) {
			t.Fatalf("slowest of %s took %v, not %v", name, times(kept), want)
		}
	}
}

func TestMergeAltersNoPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawResult("n1").Draw(t, "a"), drawResult("n2").Draw(t, "b")
		before, err := json.Marshal([]Result{a, b})
		if err != nil {
			t.Fatal(err)
		}
		merged(t, a, b)
		after, err := json.Marshal([]Result{a, b})
		if err != nil {
			t.Fatal(err)
		}
		if string(before) != string(after) {
			t.Fatalf("was\n%s\nis\n%s", before, after)
		}
	})
}

func TestBoundKeepsSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawResult("n1").Draw(t, "result")
		most := rapid.IntRange(0, 3).Draw(t, "most")
		if r.IO != nil {
			files := uint64(len(r.IO.Files)) + r.IO.FilesLeftOut
			r.IO.Bound(most)
			if uint64(len(r.IO.Files))+r.IO.FilesLeftOut != files || len(r.IO.Files) > most {
				t.Fatalf("files: %+v", r.IO)
			}
		}
		if r.CallGraph != nil {
			samples := r.CallGraph.Kernel + r.CallGraph.Lost
			r.CallGraph.Bound(most)
			if r.CallGraph.Kernel+r.CallGraph.Lost != samples || len(r.CallGraph.Stacks) > most {
				t.Fatalf("graph: %+v", r.CallGraph)
			}
		}
		if r.CallCounts != nil {
			calls := r.CallCounts.Calls + r.CallCounts.Lost
			r.CallCounts.Bound(most)
			if r.CallCounts.Calls+r.CallCounts.Lost != calls || len(r.CallCounts.Edges) > most {
				t.Fatalf("calls: %+v", r.CallCounts)
			}
		}
		if r.Syscalls != nil {
			listed := func() uint64 {
				sum := r.Syscalls.NotListed.Count
				for _, p := range r.Syscalls.Processes {
					sum += p.Count
				}
				return sum
			}
			before := listed()
			r.Syscalls.Bound(most)
			if listed() != before || len(r.Syscalls.Processes) > most || len(r.Syscalls.Slowest) > most {
				t.Fatalf("processes: %+v", r.Syscalls)
			}
		}
	})
}

func TestMergeRefuses(t *testing.T) {
	good := Result{Format: Format, Job: 1}
	for name, c := range map[string]struct {
		other Result
		want  error
	}{
		"another job":     {Result{Format: Format, Job: 2}, ErrOtherJob},
		"another restart": {Result{Format: Format, Job: 1, Restart: 1}, ErrOtherJob},
		"another format":  {Result{Format: 2, Job: 1}, ErrFormat},
	} {
		if _, err := Merge(good, c.other); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJSONComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawResult("n1").Draw(t, "result")
		text, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseResult(text)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "read back", r, back)
	})
	if _, err := ParseResult([]byte(`{"format":99}`)); !errors.Is(err, ErrFormat) {
		t.Errorf("format 99: %v", err)
	}
}

func TestKernelShare(t *testing.T) {
	r := Result{Nodes: []Node{{JobNS: 100, SystemNS: 10}, {JobNS: 300, SystemNS: 10}}}
	if share, ok := r.KernelShare(); share != 0.05 || !ok {
		t.Errorf("share is %v, %v", share, ok)
	}
	if _, ok := (&Result{}).KernelShare(); ok {
		t.Error("a share of nothing")
	}
}

func TestOverheadShare(t *testing.T) {
	for want, o := range map[float64]Overhead{0: {SpentNS: 5}, 0.25: {SpentNS: 5, JobNS: 20}} {
		if got := o.Share(); got != want {
			t.Errorf("%+v: %v", o, got)
		}
	}
}

func TestNoiseWorst(t *testing.T) {
	n := &Noise{CPUs: []CPUNoise{
		{CPU: 0, WantedNS: 100, LostNS: 10, Sources: []NoiseSource{{Name: "timer", MostNS: 5}}},
		{CPU: 1, WantedNS: 100, LostNS: 30, Sources: []NoiseSource{{Name: "rcu", MostNS: 9}}},
	}}
	cpu, source, ok := n.Worst()
	if !ok || cpu.CPU != 1 || source.Name != "rcu" {
		t.Errorf("worst is %+v on %+v, %v", source, cpu, ok)
	}
	if got := n.Left(); got != 0.8 {
		t.Errorf("left is %v", got)
	}
	if left := (CPUNoise{WantedNS: 1, LostNS: 5}).Left(); left != 0 {
		t.Errorf("left of too much noise is %v", left)
	}
	if mixed := n.Sum(&Noise{Method: "osnoise"}); !reflect.DeepEqual(mixed.CPUs, n.CPUs) || mixed.Method != "osnoise" {
		t.Errorf("method is %q", mixed.Method)
	}
}
