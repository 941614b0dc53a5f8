// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func graph() Flame {
	root := &Frame{Name: "all"}
	for _, c := range []struct {
		stack string
		cost  float64
	}{{"read", 1}, {"read copy", 2}, {"write", 2}, {"write copy", 3}, {"write write", 1}, {"write tiny", 1e-9}, {"read", 1}} {
		root.Add(strings.Fields(c.stack), c.cost)
	}
	return Flame{Caption: "Calls", Axis: "seconds", Root: root}
}

func TestFlameLayout(t *testing.T) {
	layout := graph().Layout()
	var got []string
	for _, f := range layout.Frames {
		got = append(got, fmt.Sprintf("%d %s %.1f+%.1f", f.Depth, f.Name, 10*f.From, 10*f.Share))
	}
	want := "0 all 0.0+10.0, 1 write 0.0+6.0, 2 copy 0.0+3.0, 2 write 3.0+1.0, 1 read 6.0+4.0, 2 copy 6.0+2.0"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if layout.LeftOut != 1 || layout.Height != 3*frameHeight {
		t.Errorf("%d left out, height %v", layout.LeftOut, layout.Height)
	}
}

func TestFlameEscapes(t *testing.T) {
	d := Document{Title: "x", Sections: []Section{{ID: "a", Components: []Component{
		Flame{Caption: "c", Root: &Frame{Name: `"><script>alert(1)</script>`, Self: 1, Total: 1}},
	}}}}
	if text := render(t, d); strings.Contains(text, "<script>alert") || !strings.Contains(text, "alert(1)") {
		t.Error("a function's name is markup")
	}
}

// No frame is wider than the one above it, none lies outside of it, siblings
// do not overlap, and what each costs itself adds up to the whole.
func TestFlameNests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Flame{Root: &Frame{Name: "root"}, Narrowest: 1e-12}
		all := 0.0
		for range rapid.IntRange(0, 30).Draw(t, "stacks") {
			cost := float64(rapid.IntRange(0, 100).Draw(t, "cost"))
			f.Root.Add(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 5).Draw(t, "stack"), cost)
			all += cost
		}
		frames := f.Layout().Frames
		const slack = 1e-9
		path := map[int]frameLayout{}
		until := map[int]float64{}
		for _, one := range frames {
			if above, ok := path[one.Depth-1]; ok && one.Depth > 0 {
				if one.From < above.From-slack || one.From+one.Share > above.From+above.Share+slack {
					t.Fatalf("%+v lies outside of %+v", one, above)
				}
			}
			if one.From < until[one.Depth]-slack {
				t.Fatalf("%+v begins before %v", one, until[one.Depth])
			}
			path[one.Depth], until[one.Depth] = one, one.From+one.Share
		}
		if math.Abs(all-f.Root.Total) > slack {
			t.Fatalf("%v of %v", f.Root.Total, all)
		}
	})
}

func number(v float64) string { return fmt.Sprintf("%g", v) }

func TestHistogram(t *testing.T) {
	got := Histogram([][]uint64{{0, 0, 5, 1}, {0, 0, 0, 0, 7, 0}}, 1, number)
	want := []ChartRow{{"4 to 8", []float64{5, 0}, nil}, {"8 to 16", []float64{1, 0}, nil}, {"16 to 32", []float64{0, 7}, nil}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Histogram([][]uint64{{3}}, 1, number); got[0].Label != "0 to 2" {
		t.Errorf("the first row %+v", got[0])
	}
	if got := Histogram([][]uint64{{3, 0, 4}}, 1, number); len(got) != 3 || got[1].Sizes[0] != 0 {
		t.Errorf("with a gap: %+v", got)
	}
	if got := Histogram([][]uint64{{0, 0}}, 1, number); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func histogram() Chart {
	return Chart{
		Caption: "Time of read", Axis: "calls", Series: Named("in the kernel", "waiting"),
		Rows: Histogram([][]uint64{{0, 10, 400, 3000, 900, 20}, {0, 0, 0, 100, 600, 50, 2}}, 1e-7, Seconds),
	}
}

func TestHistogramLayout(t *testing.T) {
	layout := histogram().Layout()
	var bars []bar
	for _, row := range layout.Rows {
		for _, b := range row.Bars {
			if b.Y < row.Top || b.Y+b.Height > row.Top+row.Height || b.X < layout.Left || b.X+b.Width > layout.Right+0.11 {
				t.Errorf("a bar lies outside of its row: %+v", b)
			}
			bars = append(bars, b)
		}
	}
	if len(bars) != 9 {
		t.Fatalf("%d bars", len(bars))
	}
	longest := slices.MaxFunc(bars, func(a, b bar) int { return cmp.Compare(a.Width, b.Width) })
	if longest.Title != "800 ns to 1.6 µs, in the kernel: 3,000" {
		t.Errorf("the longest bar is %q", longest.Title)
	}
	if len(histogram().Legend()) != 2 || (Chart{Series: Named("one")}).Legend() != nil {
		t.Error("legend")
	}
}
