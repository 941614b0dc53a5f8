// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// parts of one run on a kernel, each exact unless it has several values.
func parts(kernel string, values ...[]float64) []Side {
	var sides []Side
	for i, v := range values {
		s := side(kernel, len(v) == 1, v...)
		s.Sample.Part = string(rune('a' + i))
		sides = append(sides, s)
	}
	return sides
}

func one(v float64) []float64 { return []float64{v} }

func TestCompareAll(t *testing.T) {
	noise := []float64{80, 100, 140}
	cases := []struct {
		name   string
		a, b   []Side
		want   Standing
		change float64
		reason string
	}{
		{"one part", parts("pgo", one(90)), parts("slim", one(100)), Better, -0.1, "exact counts, and fewer"},
		{"both better", parts("pgo", one(90), one(50)), parts("slim", one(100), one(100)), Better, -0.3291796067500631, "2 better"},
		{"half as much and twice as much", parts("pgo", one(50), one(200)), parts("slim", one(100), one(100)), Equal, 0, "1 better, 1 worse"},
		{"a small loss and a large gain", parts("pgo", one(50), one(110)), parts("slim", one(100), one(100)), Better, -0.2583801, "1 better, 1 worse"},
		{"the same", parts("pgo", one(5), one(6)), parts("slim", one(5), one(6)), Equal, 0, "2 equal"},
		{"only noise", parts("pgo", noise, noise), parts("slim", one(120), one(120)), Unclear, 0, "2 unclear"},
		// The noise is lower by a half, and counts for nothing.
		{"noise and a loss", parts("pgo", noise, one(101)), parts("slim", []float64{130, 200, 280}, one(100)), Worse, 0.0049875, "1 worse, 0 equal, 1 unclear"},
		// Either change is clear, and the mean of both is less than two builds of one kernel differ by.
		{"a gain that a loss takes away", parts("pgo", one(99_750), one(100_200)), parts("slim", one(100_000), one(100_000)), Unclear, -0.000252, "no more than 0.1 %"},
		{"one part in ten", parts("pgo", one(99_500), one(1), one(1), one(1), one(1), one(1), one(1), one(1), one(1), one(1)),
			parts("slim", one(100_000), one(1), one(1), one(1), one(1), one(1), one(1), one(1), one(1), one(1)), Unclear, -0.0005011, "1 better, 0 worse, 9 equal"},
		{"another part", parts("pgo", one(90)), parts("slim", one(1), one(2))[1:], Incomparable, 0, "different parts: a and b"},
	}
	for _, c := range cases {
		got := CompareAll(c.a, c.b, rules)
		if got.Standing != c.want || !strings.Contains(got.Reason, c.reason) || len(got.Parts) != len(c.a) {
			t.Errorf("%s: %s: %s, want %s: %s", c.name, got.Standing, got.Reason, c.want, c.reason)
		}
		if d := got.Change - c.change; d > 1e-6 || d < -1e-6 {
			t.Errorf("%s: change %v, want %v", c.name, got.Change, c.change)
		}
	}
}

func TestCompareAllNamesWhatIsUnequalOnce(t *testing.T) {
	a, b := parts("pgo", one(90), one(90)), parts("slim", one(100), one(100))
	for i := range a {
		a[i].Kernel.Mitigations = []string{"pti"}
	}
	if got := CompareAll(a, b, rules).Unequal; len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestCompareAllIsAntisymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "parts")
		var a, b []Side
		for i := range n {
			for _, kernel := range []string{"a", "b"} {
				s := drawSide(t, kernel)
				s.Sample.Part = string(rune('a' + i))
				if kernel == "a" {
					a = append(a, s)
				} else {
					b = append(b, s)
				}
			}
		}
		there, back := CompareAll(a, b, rules), CompareAll(b, a, rules)
		// Where parts cancel out, rounding may decide on one side only.
		if there.Change < 1e-12 && there.Change > -1e-12 {
			return
		}
		if there.Standing != reverse[back.Standing] {
			t.Fatalf("%s (%s), and %s (%s)", there.Standing, there.Reason, back.Standing, back.Reason)
		}
	})
}

func TestDecideByAllParts(t *testing.T) {
	c := fixture()
	c.Samples = nil
	for _, s := range append(parts("pgo", one(50), one(110)), parts("slim", one(100), one(100))...) {
		c.Samples = append(c.Samples, s.Sample)
	}
	got := Decide(c)
	if got.Outcome != kb.OutcomeBenefit || len(got.Comparisons) != 2 || !strings.Contains(got.Reason, "-25.8 % on write8 (geometric mean of 2 parts") {
		t.Errorf("%s: %s", got.Outcome, got.Reason)
	}
	c.Samples[0].Values, c.Samples[1].Values = []float64{99.75}, []float64{100.2}
	if got := Decide(c); got.Outcome != kb.OutcomeNoBenefit || !strings.Contains(got.Reason, "builds of one kernel may differ") {
		t.Errorf("gain and loss: %s: %s", got.Outcome, got.Reason)
	}
	c.Samples = c.Samples[:3] // slim was not measured in the second
	if got := Decide(c); got.Outcome != kb.OutcomeRefused || !strings.Contains(got.Reason, "not measured on both") {
		t.Errorf("a part is missing: %s: %s", got.Outcome, got.Reason)
	}
}
