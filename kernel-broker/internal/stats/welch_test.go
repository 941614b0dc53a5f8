// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"testing"
)

// References: Student's sleep data as R's help for t.test prints it, and the
// samples by which implementations of Welch's test are commonly compared
// (Rosetta Code, "Welch's t-test"), whose p was computed there by numeric
// integration.
var published = []struct {
	name       string
	a, b       []float64
	t, freedom float64
	p, within  float64
}{
	{
		name: "sleep, each value + 10",
		a:    []float64{10.7, 8.4, 9.8, 8.8, 9.9, 13.4, 13.7, 10.8, 10.0, 12.0},
		b:    []float64{11.9, 10.8, 11.1, 10.1, 9.9, 14.4, 15.5, 11.6, 14.6, 13.4},
		t:    -1.8608, freedom: 17.776, p: 0.07939, within: 5e-6,
	},
	{
		name: "unequal size and variance",
		a:    []float64{17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8},
		b: []float64{
			21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8,
			20.7, 21.7, 21.5, 22.5, 23.6, 21.5, 22.5, 23.5, 21.5, 21.8,
		},
		p: 0.14884169660532798, within: 1e-11,
	},
	{
		name: "the smaller one varies less",
		a:    []float64{19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0},
		b: []float64{
			28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7,
			23.2, 17.5, 20.6, 18.0, 23.9, 21.6, 24.3, 20.4, 24.0, 13.2,
		},
		p: 0.035972271029796624, within: 1e-11,
	},
	{
		name: "screws",
		a:    []float64{30.02, 29.99, 30.11, 29.97, 30.01, 29.99},
		b:    []float64{29.89, 29.93, 29.72, 29.98, 30.02, 29.98},
		p:    0.090773324285671, within: 1e-9,
	},
	{
		name: "far apart",
		a:    []float64{3.0, 4.0, 1.0, 2.1},
		b:    []float64{490.2, 340.0, 433.9},
		p:    0.010751561149785, within: 1e-11,
	},
}

func TestWelchAgainstPublishedValues(t *testing.T) {
	for _, c := range published {
		got := Welch(summary(t, c.a), summary(t, c.b))
		if math.Abs(got.P-c.p) > c.within {
			t.Errorf("%s: p = %.15g, published %.15g", c.name, got.P, c.p)
		}
		if c.t != 0 && (math.Abs(*got.T-c.t) > 5e-5 || math.Abs(*got.Freedom-c.freedom) > 5e-4) {
			t.Errorf("%s: t = %v, freedom %v, published %v and %v", c.name, *got.T, *got.Freedom, c.t, c.freedom)
		}
	}
}

func TestWelchWithoutVariance(t *testing.T) {
	same, other := summary(t, []float64{2, 2}), summary(t, []float64{3, 3})
	if got := Welch(same, same); got.P != 1 || got.T != nil {
		t.Errorf("equal constants: %+v", got)
	}
	if got := Welch(same, other); got.P != 0 || got.T != nil {
		t.Errorf("other constants: %+v", got)
	}
	// One side constant: the one-sample test. R: t.test(c(1,2,3), mu = 5).
	got := Welch(summary(t, []float64{1, 2, 3}), summary(t, []float64{5}))
	if math.Abs(*got.T+5.196152) > 1e-6 || *got.Freedom != 2 || math.Abs(got.P-0.03509876) > 1e-7 {
		t.Errorf("against a constant: t %v, freedom %v, p %v", *got.T, *got.Freedom, got.P)
	}
}

// Squares of such errors vanish in a float64.
func TestWelchOfTinyNumbers(t *testing.T) {
	for _, c := range published {
		small := func(values []float64) []float64 {
			out := make([]float64, len(values))
			for i, v := range values {
				out[i] = math.Ldexp(v, -400)
			}
			return out
		}
		got := Welch(summary(t, small(c.a)), summary(t, small(c.b)))
		want := Welch(summary(t, c.a), summary(t, c.b))
		if !near(got.P, want.P) {
			t.Errorf("%s: p = %v, and %v of larger numbers", c.name, got.P, want.P)
		}
	}
}

func summary(t *testing.T, values []float64) Summary {
	t.Helper()
	s, err := Summarise(values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
