// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"testing"

	"pgregory.net/rapid"
)

func TestCoverage(t *testing.T) {
	for name, c := range map[string]struct {
		coverage      Coverage
		share, factor float64
	}{
		"all the time":      {Coverage{Exact: true, SpanNS: 10, ObservedNS: 10, Events: 5, Estimated: 5}, 1, 1},
		"a part":            {Coverage{SpanNS: 10, ObservedNS: 1, Events: 5, Estimated: 20}, 0.1, 4},
		"nothing happened":  {Coverage{SpanNS: 10, ObservedNS: 1}, 0.1, 1},
		"no time":           {Coverage{Exact: true}, 1, 1},
		"never less":        {Coverage{SpanNS: 10, ObservedNS: 9, Events: 5, Estimated: 4}, 0.9, 1},
		"exact stays exact": {Coverage{Exact: true, SpanNS: 10, ObservedNS: 10, Events: 5, Estimated: 9}, 1, 1},
	} {
		if c.coverage.Share() != c.share || c.coverage.Factor() != c.factor {
			t.Errorf("%s: share %v, factor %v", name, c.coverage.Share(), c.coverage.Factor())
		}
	}
}

func TestCoveredByAllNodes(t *testing.T) {
	r := Result{Coverage: []Coverage{
		{Node: "n1", Collector: CollectIO, Exact: true, SpanNS: 10, ObservedNS: 10, Events: 2, Estimated: 2},
		{Node: "n2", Collector: CollectIO, SpanNS: 30, ObservedNS: 10, Events: 2, Estimated: 6, Scaled: []string{"calls"}, Pauses: 3},
		{Node: "n2", Collector: CollectSyscalls, Exact: true},
	}}
	all, known := r.Covered(CollectIO)
	if !known || all.Exact || all.Share() != 0.5 || all.Factor() != 2 || all.Pauses != 3 || len(all.Scaled) != 1 {
		t.Errorf("of io: %+v", all)
	}
	if all, known := r.Covered(CollectSyscalls); !known || !all.Exact {
		t.Errorf("of syscalls: %+v", all)
	}
	if all, known := r.Covered(CollectNoise); known || !all.Exact {
		t.Errorf("of noise: %+v", all)
	}
}

func TestExactIsLeftAlone(t *testing.T) {
	calls := &Syscalls{Calls: []Syscall{{Name: "read", Count: 3}}}
	r := Result{Syscalls: calls}
	r.Cover(Coverage{Collector: CollectSyscalls, Exact: true, Events: 1, Estimated: 1})
	if r.Syscalls != calls || len(r.Coverage) != 1 || r.Coverage[0].Scaled != nil {
		t.Errorf("result is %+v", r)
	}
}

func TestEstimatesAreScaled(t *testing.T) {
	before := &IO{Files: []File{{Path: "/a", Size: 100, Opens: 1, Seeks: 2, Write: Traffic{Calls: 4, Bytes: 40, Least: 10, Most: 10, Sizes: Histogram{0, 0, 0, 4}}}},
		Patterns: []Pattern{{Shape: "/a", Files: 1, Calls: 4, Advice: []Advice{{What: "x", Why: "4 calls"}}}}, FilesLeftOut: 7}
	before.AddTotal(Total{Kind: RegularFiles, Write: before.Files[0].Write})
	r := Result{IO: before}
	r.Cover(Coverage{Collector: CollectIO, Events: 10, Estimated: 25})
	f := r.IO.Files[0]
	if f.Opens != 3 || f.Seeks != 5 || f.Write.Calls != 10 || f.Write.Bytes != 100 || f.Write.Sizes[3] != 10 {
		t.Errorf("scaled: %+v", f)
	}
	if f.Size != 100 || f.Write.Most != 10 || f.Write.Least != 10 || r.IO.FilesLeftOut != 7 || r.IO.Patterns[0].Files != 1 {
		t.Errorf("as seen: %+v", r.IO)
	}
	if r.IO.Total(RegularFiles).Write.Calls != 10 || r.IO.Patterns[0].Calls != 10 || r.IO.Patterns[0].Advice != nil {
		t.Errorf("sums: %+v", r.IO)
	}
	if c := r.Coverage[0]; len(c.Scaled) == 0 || len(c.AsSeen) == 0 {
		t.Errorf("not said what is scaled: %+v", c)
	}
	if before.Files[0].Opens != 1 || before.Files[0].Write.Sizes[3] != 4 || before.Patterns[0].Advice == nil {
		t.Error("what was seen was changed")
	}
}

// What holds of all results holds of estimates: the parts of a call's time add
// up to it, and its histogram to its count.
func TestScaledCallsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Syscalls{}
		for range rapid.IntRange(1, 5).Draw(t, "calls") {
			c := Syscall{Name: rapid.SampledFrom([]string{"read", "write"}).Draw(t, "name"), Split: map[Cause]Part{}}
			for range rapid.IntRange(1, 9).Draw(t, "count") {
				ns := rapid.Uint64Range(0, 1e9).Draw(t, "ns")
				c.Times.Add(ns)
				part := c.Split[CauseCall]
				c.Split[CauseCall] = Part{NS: part.NS + ns/3}
				part = c.Split[CauseFault]
				c.Split[CauseFault] = Part{Count: part.Count + 1, NS: part.NS + ns - ns/3}
				c.Count, c.NS, c.MostNS = c.Count+1, c.NS+ns, max(c.MostNS, ns)
			}
			s.Calls = append(s.Calls, c)
		}
		factor := rapid.Float64Range(1, 100).Draw(t, "factor")
		var before, after uint64
		for _, c := range s.Calls {
			before += c.Count
		}
		for _, c := range s.scaled(factor).Calls {
			after += c.Count
			if sum := c.Split[CauseCall].NS + c.Split[CauseFault].NS; sum != c.NS || c.Times.Count() != c.Count {
				t.Fatalf("parts %d of %d ns, %d of %d calls", sum, c.NS, c.Times.Count(), c.Count)
			}
		}
		// Each bucket is rounded by itself.
		if off := float64(after) - factor*float64(before); off > 200 || off < -200 {
			t.Fatalf("%d calls become %d by %v", before, after, factor)
		}
	})
}
