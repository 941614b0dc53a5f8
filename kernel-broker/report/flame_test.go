// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func graph() Flame {
	return Flame{Caption: "Calls", Axis: "seconds", Amount: Seconds, Root: Frame{Name: "all", Calls: []Frame{
		{Name: "read", Self: 1, Calls: []Frame{{Name: "copy", Self: 2}}},
		{Name: "write", Self: 2, Calls: []Frame{{Name: "copy", Self: 3}, {Name: "write", Self: 1}, {Name: "tiny", Self: 1e-9}}},
		{Name: "read", Self: 1},
	}}}
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

func TestFlameTable(t *testing.T) {
	table := graph().Table(3)
	var got []string
	for _, row := range table.Rows {
		got = append(got, row[0].Text+" "+row[1].Text+" "+row[2].Text+" "+row[3].Text)
	}
	// write calls itself: its total is 6 and not 7.
	want := "copy 5 s 50.0 % 5 s, write 3 s 30.0 % 6 s, read 2 s 20.0 % 4 s"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if table.Note != "The first 3 of 5 functions." {
		t.Errorf("note %q", table.Note)
	}
}

func TestFlameEscapes(t *testing.T) {
	d := Document{Title: "x", Sections: []Section{{ID: "a", Components: []Component{
		Flame{Caption: "c", Root: Frame{Name: `"><script>alert(1)</script>`, Self: 1}},
	}}}}
	if text := render(t, d); strings.Contains(text, "<script>alert") || !strings.Contains(text, "alert(1)") {
		t.Error("a function's name is markup")
	}
}

func drawFrame(t *rapid.T, depth int) Frame {
	f := Frame{Name: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"), Self: float64(rapid.IntRange(0, 100).Draw(t, "self"))}
	if depth > 0 {
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			f.Calls = append(f.Calls, drawFrame(t, depth-1))
		}
	}
	return f
}

// No frame is wider than the one above it, none lies outside of it, siblings
// do not overlap, and what each costs itself adds up to the whole.
func TestFlameNests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Flame{Root: drawFrame(t, 4), Narrowest: 1e-12}
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
		self := 0.0
		for _, row := range f.Table(-1).Rows {
			self += *row[1].Value
		}
		if math.Abs(self-f.Root.Total()) > slack {
			t.Fatalf("%v of %v", self, f.Root.Total())
		}
	})
}

func TestLog2(t *testing.T) {
	got := Log2([][]uint64{{0, 0, 5, 1}, {0, 0, 0, 0, 7, 0}}, 1e-9)
	want := []Bucket{{4e-9, 8e-9, []float64{5, 0}}, {8e-9, 16e-9, []float64{1, 0}}, {16e-9, 32e-9, []float64{0, 7}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Log2([][]uint64{{3}}, 1); got[0].From != 0 || got[0].To != 2 {
		t.Errorf("the first bucket %+v", got[0])
	}
	if got := Log2([][]uint64{{0, 0}}, 1); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

func histogram() Histogram {
	return Histogram{
		Caption: "Time of read", Axis: "calls", Bound: Seconds, Series: Named("in the kernel", "waiting"),
		Buckets: Log2([][]uint64{{0, 10, 400, 3000, 900, 20}, {0, 0, 0, 100, 600, 50, 2}}, 1e-7),
	}
}

func TestHistogramLayout(t *testing.T) {
	layout := histogram().Layout()
	if len(layout.Bars) != 9 {
		t.Fatalf("%d bars", len(layout.Bars))
	}
	for i, b := range layout.Bars {
		if b.Y < 0 || b.Y+b.Height > layout.Low+0.11 || b.X < layout.Left || b.X+b.Width > layout.Right {
			t.Errorf("bar %d lies outside: %+v", i, b)
		}
	}
	tallest := layout.Bars[2]
	if !strings.Contains(tallest.Title, "3,000") {
		t.Errorf("third bar %q", tallest.Title)
	}
	for _, b := range layout.Bars {
		if b.Height > tallest.Height {
			t.Errorf("%q is higher than 3,000", b.Title)
		}
	}
}

func TestHistogramTable(t *testing.T) {
	table := histogram().Table()
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
	row := table.Rows[2]
	if row[0].Text != "800 ns" || row[1].Text != "1.6 µs" || row[2].Text != "3,000" || row[3].Text != "100" {
		t.Errorf("row %+v", row)
	}
	if len(histogram().Legend()) != 2 || (Histogram{Series: Named("one")}).Legend() != nil {
		t.Error("legend")
	}
}
