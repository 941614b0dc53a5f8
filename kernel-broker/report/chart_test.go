// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestScale(t *testing.T) {
	cases := []struct {
		low, high      float64
		ticks          int
		from, to, step float64
	}{
		{93, 107, 8, 92, 108, 2},
		{0, 4.79, 6, 0, 5, 1},
		{0, 0, 5, -1, 1, 0.5},
		{5, 5, 4, 4.4, 5.6, 0.5},
		{-3, 17, 5, -5, 20, 5},
		{0, 1e9, 5, 0, 1e9, 2e8},
	}
	for _, c := range cases {
		s := newScale(c.low, c.high, 0, 100, c.ticks)
		if s.from > c.low || s.to < c.high {
			t.Errorf("%v to %v: the scale from %v to %v hides something", c.low, c.high, s.from, s.to)
		}
		if c.low != c.high && (!close(s.from, c.from) || !close(s.to, c.to) || !close(s.step, c.step)) {
			t.Errorf("%v to %v: from %v to %v by %v, want %v, %v, %v", c.low, c.high, s.from, s.to, s.step, c.from, c.to, c.step)
		}
	}
}

func close(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) }

func TestScaleKeepsOrderAndBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Float64Range(-1e9, 1e9).Draw(t, "low")
		high := low + rapid.Float64Range(0, 1e9).Draw(t, "more")
		s := newScale(low, high, 10, 110, rapid.IntRange(1, 12).Draw(t, "ticks"))
		a, b := rapid.Float64Range(low, high).Draw(t, "a"), rapid.Float64Range(low, high).Draw(t, "b")
		if a > b {
			a, b = b, a
		}
		if s.at(a) > s.at(b) || s.at(a) < 10 || s.at(b) > 110 {
			t.Fatalf("%v at %v, %v at %v", a, s.at(a), b, s.at(b))
		}
		if n := len(s.ticks()); n < 2 || n > 30 {
			t.Fatalf("%d ticks", n)
		}
	})
}

func TestNearlyEqualValuesHaveAScale(t *testing.T) {
	low := 3.6259883984257613e-13
	if n := len(newScale(low, low+5.048709793414476e-29, 0, 100, 6).ticks()); n < 2 {
		t.Errorf("%d ticks", n)
	}
}

func TestTicksDiffer(t *testing.T) {
	for _, c := range []struct{ low, high float64 }{{99.976, 100.003}, {93, 107}, {0, 3}, {0, 0.0004}, {1000, 9000}} {
		s := newScale(c.low, c.high, 0, 100, 8)
		seen := map[string]bool{}
		for _, v := range s.ticks() {
			if seen[s.text(v)] {
				t.Errorf("%v to %v: two ticks %s", c.low, c.high, s.text(v))
			}
			seen[s.text(v)] = true
		}
	}
}

func TestDotsSpan(t *testing.T) {
	chart := Chart{Series: Named("x"), Reference: ref(100), Span: 2, Rows: []ChartRow{{Label: "r", Dots: []*Dot{{Value: 100.01}}}}}
	if s := chart.scale(); s.from > 98 || s.to < 102 {
		t.Errorf("the axis goes from %v to %v", s.from, s.to)
	}
}

func TestDotsLayout(t *testing.T) {
	chart := sample().Sections[2].Components[0].(Chart)
	layout := chart.Layout()
	if len(layout.Rows) != 2 || len(layout.Rows[0].Marks) != 1 || len(layout.Rows[1].Marks) != 2 {
		t.Fatalf("rows %+v", layout.Rows)
	}
	first, second := layout.Rows[0].Marks[0], layout.Rows[1].Marks[1]
	if !(first.X < *layout.Reference && *layout.Reference < second.X) {
		t.Errorf("90 at %v, 100 at %v, 120 at %v", first.X, *layout.Reference, second.X)
	}
	if !(first.From < first.X && first.X < first.To) || second.From != second.To {
		t.Errorf("whiskers from %v over %v to %v, and from %v to %v", first.From, first.X, first.To, second.From, second.To)
	}
	for _, row := range layout.Rows {
		for _, m := range row.Marks {
			if m.Y < row.Top || m.Y > row.Top+row.Height || m.X < layout.Left || m.X > layout.Right {
				t.Errorf("a mark at %v, %v outside of its row", m.X, m.Y)
			}
		}
	}
}

func TestBarsLayout(t *testing.T) {
	layout := sample().Sections[2].Components[1].(Chart).Layout()
	hot, cold := layout.Rows[0].Bars[0], layout.Rows[0].Bars[1]
	if hot.X != layout.Left || !close(cold.X, hot.X+hot.Width) {
		t.Errorf("hot from %v to %v, cold from %v", hot.X, hot.X+hot.Width, cold.X)
	}
	if ratio := hot.Width / cold.Width; math.Abs(ratio-3) > 0.01 {
		t.Errorf("3 is drawn %v times as wide as 1", ratio)
	}
	if two := layout.Rows[1]; len(two.Bars) != 1 || two.Total != "2" {
		t.Errorf("second bar %+v", two)
	}
}

// Nothing to show is a chart without rows, not a division by zero.
func TestEmptyCharts(t *testing.T) {
	d := Document{Title: "x", Sections: []Section{{ID: "a", Components: []Component{
		Chart{Caption: "Nothing"}, Chart{Caption: "Holes", Series: Named("a"), Rows: []ChartRow{{Label: "r", Dots: []*Dot{nil}}}},
		Chart{Caption: "Zeros", Series: Named("a"), Rows: []ChartRow{{Label: "r", Sizes: []float64{0}}}},
		Flame{Caption: "Flame"}, Flame{Caption: "Only a root", Root: &Frame{Name: "root"}},
	}}}}
	if text := render(t, d); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("a figure that is none is drawn")
	}
}

func TestSeriesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range (Chart{Series: Named("a", "b", "c", "d", "e", "f", "g", "h")}).Legend() {
		if seen[e.Shape] || seen[e.Class] {
			t.Errorf("%s looks like another", e.Name)
		}
		seen[e.Shape], seen[e.Class] = true, true
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1280: "1,280", 40696.4: "40,696", 1234567: "1,234,567", -1234: "-1,234", 12.345: "12.3", 0.5: "0.500", 0.0000123: "1.23e-05",
		99.96: "100", 100: "100", 3: "3", 0.02: "0.0200", math.Inf(1): "–",
	} {
		if got := Count(v); got != want {
			t.Errorf("Count(%v) = %q, want %q", v, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.50 KiB", 3 << 29: "1.50 GiB", 130 << 20: "130 MiB", 5 << 20: "5.00 MiB", -2048: "-2.00 KiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
	for v, want := range map[float64]string{1.5: "1.5 s", 999.4: "999 s", 999.7: "1,000 s", 24.975: "25 s", 12345.6: "12,346 s", 1234567.8: "1,234,568 s", 0.0123: "12.3 ms", 0.0000456: "45.6 µs", 0.00000007: "70 ns", 0: "0 ns"} {
		if got := Seconds(v); got != want {
			t.Errorf("Seconds(%v) = %q, want %q", v, got, want)
		}
	}
}
