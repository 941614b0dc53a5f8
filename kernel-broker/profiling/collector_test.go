// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseCollectors(t *testing.T) {
	for text, want := range map[string][]Collector{
		"":                 DefaultCollectors(),
		" default ":        DefaultCollectors(),
		"all":              {CollectIO, CollectSyscalls, CollectCallgraph, CollectNoise, CollectPGO},
		"callcounts,noise": {CollectNoise, CollectCallCounts},
		"noise,io":         {CollectIO, CollectNoise},
		"io, io ,syscalls": {CollectIO, CollectSyscalls},
		"pgo":              {CollectPGO},
	} {
		got, err := ParseCollectors(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "io,", ",", "io;noise", "IO", "io,all"} {
		if got, err := ParseCollectors(text); !errors.Is(err, ErrCollector) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestUnsupportedSaysWhatHelps(t *testing.T) {
	u := &Unsupported{Collector: CollectIO, Reason: NoBTF, Detail: "no type information", Remedy: "build it"}
	if got := u.Error(); got != `collector "io": no type information; build it` {
		t.Errorf("error is %q", got)
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, v := range []uint64{0, 1, 2, 3, 4, 1 << 63} {
		h.Add(v)
	}
	if h[0] != 2 || h[1] != 2 || h[2] != 1 || h[63] != 1 || len(h) != 64 {
		t.Errorf("buckets are %v", h)
	}
	for q, want := range map[float64]uint64{0: 1, 0.5: 3, 0.99: 1<<64 - 1} {
		if got := h.AtMost(q); got != want {
			t.Errorf("%v: %d, want %d", q, got, want)
		}
	}
	if (Histogram{}).AtMost(0.5) != 0 || Histogram([]uint64{0, 0}).Trimmed() != nil {
		t.Error("an empty histogram has values")
	}
}

func TestHistogramBoundHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Uint64(), 1, 50).Draw(t, "values")
		q := rapid.Float64Range(0, 0.999).Draw(t, "q")
		var h Histogram
		for _, v := range values {
			h.Add(v)
		}
		bound, below := h.AtMost(q), 0
		for _, v := range values {
			if v <= bound {
				below++
			}
		}
		if float64(below) < q*float64(len(values)) {
			t.Fatalf("%d of %d lie below %d, wanted %v", below, len(values), bound, q)
		}
	})
}

var graph = CallGraph{Kernel: 10, Stacks: []Stack{
	{Frames: []string{"entry", "write", "copy"}, Samples: 6},
	{Frames: []string{"entry", "write"}, Samples: 3},
	{Frames: []string{"walk", "walk", "walk"}, Samples: 1},
}}

func TestFunctionsAndEdges(t *testing.T) {
	want := []Function{{"copy", 6, 6}, {"write", 3, 9}, {"walk", 1, 1}, {"entry", 0, 9}}
	if got := graph.Functions(); !slices.Equal(got, want) {
		t.Errorf("functions are %v", got)
	}
	edges := []Edge{{"entry", "write", 9}, {"write", "copy", 6}, {"walk", "walk", 1}}
	if got := graph.Edges(); !slices.Equal(got, edges) {
		t.Errorf("edges are %v", got)
	}
}

func TestFolded(t *testing.T) {
	var text bytes.Buffer
	if err := graph.WriteFolded(&text); err != nil {
		t.Fatal(err)
	}
	if want := "entry;write;copy 6\nentry;write 3\nwalk;walk;walk 1\n"; text.String() != want {
		t.Errorf("folded is %q", text.String())
	}
}

func TestDOT(t *testing.T) {
	g := CallGraph{Kernel: 100, Stacks: []Stack{{Frames: []string{`a"b`, `c\d`}, Samples: 99}, {Frames: []string{"rare"}, Samples: 1}}}
	var text strings.Builder
	if err := g.WriteDOT(&text, 0.05); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"a\"b" -> "c\\d" [label="99"`, `label="c\\d\nself 99.0 %, all 99.0 %"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "rare") {
		t.Errorf("a rare function is drawn:\n%s", text.String())
	}
}
