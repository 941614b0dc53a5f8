// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Counts as a bench gives them: integers that a float64 holds exactly, so that
// moving or scaling them by integers is exact too.
func counts(t *rapid.T, label string) []float64 {
	base := rapid.IntRange(0, 1_000_000).Draw(t, label+" base")
	jitter := rapid.SampledFrom([]int{0, 1, 10, 1000, 100_000}).Draw(t, label+" jitter")
	values := rapid.SliceOfN(rapid.IntRange(base, base+jitter), 1, 12).Draw(t, label)
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}

func drawSide(t *rapid.T, kernel string) Side {
	return side(kernel, rapid.Bool().Draw(t, kernel+" exact"), counts(t, kernel)...)
}

func mapped(s Side, change func(float64) float64) Side {
	values := make([]float64, len(s.Sample.Values))
	for i, v := range s.Sample.Values {
		values[i] = change(v)
	}
	s.Sample.Values = values
	return s
}

var reverse = map[Standing]Standing{Better: Worse, Worse: Better, Equal: Equal, Unclear: Unclear, Incomparable: Incomparable}

func TestCompareIsAntisymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSide(t, "a"), drawSide(t, "b")
		there, back := Compare(a, b, rules), Compare(b, a, rules)
		if there.Standing != reverse[back.Standing] {
			t.Fatalf("%s one way, %s the other", there.Standing, back.Standing)
		}
		if there.Spread != back.Spread || there.Method != back.Method {
			t.Fatalf("spread %v and %v, method %s and %s", there.Spread, back.Spread, there.Method, back.Method)
		}
		if there.Test != nil && there.Test.P != back.Test.P {
			t.Fatalf("p %v and %v", there.Test.P, back.Test.P)
		}
	})
}

// The unit of what is measured is no matter: powers of two keep every digit.
func TestCompareIsScaleInvariant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSide(t, "a"), drawSide(t, "b")
		power := rapid.IntRange(-200, 200).Draw(t, "power")
		scale := func(v float64) float64 { return math.Ldexp(v, power) }
		plain, scaled := Compare(a, b, rules), Compare(mapped(a, scale), mapped(b, scale), rules)
		if plain.Standing != scaled.Standing {
			t.Fatalf("%s, and %s when scaled by 2^%d", plain.Standing, scaled.Standing, power)
		}
		if plain.Test != nil && !near(plain.Test.P, scaled.Test.P) {
			t.Fatalf("p %v, and %v when scaled", plain.Test.P, scaled.Test.P)
		}
		if plain.Change != nil && *plain.Change != *scaled.Change {
			t.Fatalf("change %v, and %v when scaled", *plain.Change, *scaled.Change)
		}
	})
}

var rank = map[Standing]int{Better: 0, Equal: 1, Unclear: 1, Worse: 2}

// A candidate that needs less in each repetition never stands worse for it.
func TestCompareIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSide(t, "a"), drawSide(t, "b")
		less := float64(rapid.IntRange(1, 200_000).Draw(t, "less"))
		b = mapped(b, func(v float64) float64 { return v + 200_000 })
		a = mapped(a, func(v float64) float64 { return v + 200_000 })
		before := Compare(a, b, rules)
		after := Compare(mapped(a, func(v float64) float64 { return v - less }), b, rules)
		if rank[after.Standing] > rank[before.Standing] {
			t.Fatalf("%s became %s with %v less", before.Standing, after.Standing, less)
		}
	})
}

// What is not larger than the spread, and what is not significant, never wins.
func TestNoWinWithoutCause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSide(t, "a"), drawSide(t, "b")
		c := Compare(a, b, rules)
		if c.Standing != Better {
			return
		}
		if !(c.To.Median-c.Of.Median > c.Spread) {
			t.Fatalf("better by %v, spread %v", c.To.Median-c.Of.Median, c.Spread)
		}
		if !(c.To.Median-c.Of.Median > rules.Resolution*c.To.Median) {
			t.Fatalf("better by %v of %v", c.To.Median-c.Of.Median, c.To.Median)
		}
		if c.Method == ByWelch && !(c.Test.P < rules.Significance) {
			t.Fatalf("better at p = %v", c.Test.P)
		}
	})
}

// A model's figure, or a count beside the one that decides, may say what it likes: the verdict is the same.
func TestModelsNeverDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := fixture()
		c.Samples = []Sample{drawSide(t, "pgo").Sample, drawSide(t, "slim").Sample}
		before := Decide(c)
		for _, metric := range []string{KernelInstructions, UserInstructions, Strings, StringBytes, L1IMisses, Mispredictions, TakenBranches} {
			for _, kernel := range []string{"pgo", "slim"} {
				s := sample(kernel, true, counts(t, metric+kernel)...)
				s.Metric = metric
				c.Samples = append(c.Samples, s)
			}
		}
		if after := Decide(c); after.Outcome != before.Outcome || after.Reason != before.Reason {
			t.Fatalf("%s (%s) became %s (%s)", before.Outcome, before.Reason, after.Outcome, after.Reason)
		}
	})
}

// Two kernels cannot both be the better one.
func TestVerdictsDoNotContradict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := fixture()
		c.Samples = []Sample{drawSide(t, "pgo").Sample, drawSide(t, "slim").Sample}
		c.Checks = append(c.Checks, CheckRun{Workload: "write8", Kernel: "slim", Passed: true})
		back := c
		back.Candidate, back.Current = c.Current, c.Candidate
		if Decide(c).Outcome == kb.OutcomeBenefit && Decide(back).Outcome == kb.OutcomeBenefit {
			t.Fatal("both win")
		}
	})
}

// More of anything costs more.
func TestWeigh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) uint64 { return rapid.Uint64Range(0, 1<<40).Draw(t, label) }
		n, strings, bytes := draw("instructions"), draw("strings"), draw("bytes")
		for _, more := range []float64{Weigh(n+1, strings, bytes), Weigh(n, strings+1, bytes), Weigh(n, strings, bytes+1)} {
			if !(more > Weigh(n, strings, bytes)) {
				t.Fatalf("%v is not more", more)
			}
		}
	})
	if page := Weigh(1, 1, 4096); page != 1+30+128 {
		t.Errorf("a page is %v", page)
	}
}

func near(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b))
}
