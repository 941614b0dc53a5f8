// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"math"
	"testing"
)

func TestSummarise(t *testing.T) {
	// Quartiles by R: quantile(c(...), type = 7).
	cases := []struct {
		values                                       []float64
		median, mean, least, most, spread, deviation float64
	}{
		{[]float64{5}, 5, 5, 5, 5, 0, 0},
		{[]float64{3, 1}, 2, 2, 1, 3, 1, math.Sqrt2},
		{[]float64{0.1, 0.1, 0.1}, 0.1, 0.1, 0.1, 0.1, 0, 0},
		{[]float64{9, 1, 4}, 4, 14. / 3, 1, 9, 4, 4.041451884327381},
		{[]float64{1, 2, 3, 4, 100}, 3, 22, 1, 100, 2, 43.617656975128774},
	}
	for _, c := range cases {
		got, err := Summarise(c.values)
		if err != nil {
			t.Fatal(err)
		}
		want := Summary{len(c.values), c.median, c.mean, c.least, c.most, c.spread, c.deviation}
		if !near(got.Mean, want.Mean) || !near(got.Deviation, want.Deviation) {
			t.Errorf("%v: got %+v, want %+v", c.values, got, want)
		}
		got.Mean, got.Deviation, want.Mean, want.Deviation = 0, 0, 0, 0
		if got != want {
			t.Errorf("%v: got %+v, want %+v", c.values, got, want)
		}
	}
}

func TestSummariseKeepsValues(t *testing.T) {
	values := []float64{3, 1, 2}
	if _, err := Summarise(values); err != nil || values[0] != 3 {
		t.Errorf("values became %v, error %v", values, err)
	}
}

func TestSummariseRefuses(t *testing.T) {
	if _, err := Summarise(nil); !errors.Is(err, ErrNoValue) {
		t.Errorf("no value: %v", err)
	}
	for _, v := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1e101, 1e-151} {
		if _, err := Summarise([]float64{1, v}); !errors.Is(err, ErrBadValue) {
			t.Errorf("%v: %v", v, err)
		}
	}
}

func TestGeometricMean(t *testing.T) {
	if got, err := GeometricMean([]float64{0.5, 2}); err != nil || !near(got, 1) {
		t.Errorf("of 1/2 and 2: %v, %v", got, err)
	}
	// The six applications of Tarax: +8.8 %.
	got, err := GeometricMean([]float64{1.119, 1.169, 1.057, 1.028, 1.078, 1.085})
	if err != nil || math.Abs(got-1.088) > 0.0005 {
		t.Errorf("of published speed-ups: %v, %v", got, err)
	}
	for _, bad := range [][]float64{nil, {1, 0}, {1, -1}, {math.NaN()}, {math.Inf(1)}} {
		if _, err := GeometricMean(bad); err == nil {
			t.Errorf("%v has a geometric mean", bad)
		}
	}
}

func near(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b))
}
