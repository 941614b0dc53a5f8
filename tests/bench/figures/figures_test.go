// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/perf/benchfmt"
)

func TestSpread(t *testing.T) {
	s := Of([]float64{3, 1, 2, 8})
	if s.Median != 2.5 || s.Min != 1 || s.Max != 8 || s.Samples[0] != 3 || s.Q1 < 1 || s.Q1 > 2 || s.Q3 < 3 || s.Q3 > 8 {
		t.Errorf("%+v", s)
	}
	if s := Of([]float64{3}); s.Median != 3 || s.Q1 != 3 || s.Q3 != 3 {
		t.Errorf("of one sample: %+v", s)
	}
}

func TestWarmUpDoesNotCount(t *testing.T) {
	b := &Book{Warming: true}
	b.Add("x", "", 100)
	if _, ok := b.Median("x"); ok {
		t.Error("a warm-up alone has a median")
	}
	b.Warming = false
	b.Add("x", "", 1)
	if v, _ := b.Median("x"); v != 1 {
		t.Errorf("median %v", v)
	}
}

// benchstat reads what is left for it.
func TestWrite(t *testing.T) {
	b := &Book{}
	b.Add("plain make", "", 1.5)
	b.Add("plain make", "", 2.5)
	path := filepath.Join(t.TempDir(), "bench.json")
	if err := Write(path, b.Measures, b.Series("CPU", "sec/op")); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(filepath.Dir(path), "bench.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read from
	var got []float64
	for r := benchfmt.NewReader(file, "bench.txt"); r.Scan(); {
		one, ok := r.Result().(*benchfmt.Result)
		if !ok {
			t.Fatalf("not benchmark format: %v", r.Result())
		}
		v, ok := one.Value("sec/op")
		if name := one.Name.String(); !ok || name != "CPU/measure=plain-make" {
			t.Errorf("%s has sec/op %t", name, ok)
		}
		got = append(got, v)
	}
	if len(got) != 2 || got[1] != 2.5 {
		t.Errorf("read %v", got)
	}
}
