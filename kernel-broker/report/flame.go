// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
)

// Flame is a call graph as nested bars: below each function those that it
// called, as wide as what they cost. A click makes a function as wide as the
// page, and what is searched for is marked; without a script it stands still.
type Flame struct {
	Caption string
	Axis    string
	Root    Frame
	// Amount writes a cost, Seconds or Count.
	Amount func(float64) string
	// Narrowest share of the whole that is drawn; 0 for a fifth of a pixel.
	Narrowest float64
}

// Frame is a function as called on one way.
type Frame struct {
	Name string
	// Self is what it cost without what it called.
	Self  float64
	Calls []Frame
}

func (Flame) template() string { return "flame" }

// Total cost of the frame and all that it called.
func (f Frame) Total() float64 {
	total := f.Self
	for _, c := range f.Calls {
		total += c.Total()
	}
	return total
}

const (
	frameHeight = 18.
	letterWidth = 6.6
	heats       = 5
)

// FlameLayout is a chart as drawn.
type FlameLayout struct {
	Width, Height float64
	Frames        []frameLayout
	// LeftOut frames are too narrow to see.
	LeftOut int
}

type frameLayout struct {
	Class, Name, Label, Title string
	X, Y, Width, Height       float64
	TextX, TextY              float64
	// From and Share of the whole, which the script zooms with.
	From, Share float64
	Depth       int
}

// Layout places everything.
func (f Flame) Layout() FlameLayout {
	walk := flameWalk{flame: f, total: f.Root.Total(), narrowest: f.Narrowest}
	if walk.narrowest == 0 {
		walk.narrowest = 0.2 / chartWidth
	}
	if walk.total > 0 && !math.IsInf(walk.total, 0) {
		walk.place(f.Root, 0, 0)
	}
	walk.out.Width, walk.out.Height = chartWidth, float64(walk.depth+1)*frameHeight
	return walk.out
}

type flameWalk struct {
	flame     Flame
	total     float64
	narrowest float64
	depth     int
	out       FlameLayout
}

func (w *flameWalk) place(frame Frame, from float64, depth int) {
	total := frame.Total()
	share := total / w.total
	if !(share >= w.narrowest) {
		w.out.LeftOut++
		return
	}
	w.depth = max(w.depth, depth)
	placed := frameLayout{
		Class: fmt.Sprintf("heat%d", heat(frame.Name)), Name: frame.Name,
		Title: fmt.Sprintf("%s: %s, %.4g %% of all; itself %s", frame.Name, w.flame.amount(total), 100*share, w.flame.amount(frame.Self)),
		X:     round(from * chartWidth), Y: float64(depth) * frameHeight, Width: round(share * chartWidth), Height: frameHeight - 1,
		From: from, Share: share, Depth: depth,
	}
	placed.TextX, placed.TextY = placed.X+3, placed.Y+13
	if letters := int((placed.Width - 6) / letterWidth); letters >= 3 {
		placed.Label = shorten(frame.Name, letters)
	}
	w.out.Frames = append(w.out.Frames, placed)
	at := from
	for _, called := range together(frame.Calls) {
		w.place(called, at, depth+1)
		at += called.Total() / w.total
	}
}

// together puts calls of one function side by side into one, the costly first.
func together(calls []Frame) []Frame {
	var out []Frame
	at := map[string]int{}
	for _, c := range calls {
		if i, ok := at[c.Name]; ok {
			out[i].Self += c.Self
			out[i].Calls = append(slices.Clone(out[i].Calls), c.Calls...)
			continue
		}
		at[c.Name] = len(out)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Frame) int {
		return cmp.Or(cmp.Compare(b.Total(), a.Total()), strings.Compare(a.Name, b.Name))
	})
	return out
}

// heat gives a function the same tint wherever it stands.
func heat(name string) uint32 {
	sum := fnv.New32a()
	// A hash never fails to be written to.
	_, _ = sum.Write([]byte(name))
	return sum.Sum32() % heats
}

func (f Flame) amount(v float64) string {
	if f.Amount == nil {
		return Count(v)
	}
	return f.Amount(v)
}

// Table of the functions that cost most themselves, on all ways together. A
// function's total counts once where it calls itself.
func (f Flame) Table(most int) Table {
	self, total := map[string]float64{}, map[string]float64{}
	var walk func(frame Frame, above []string)
	walk = func(frame Frame, above []string) {
		self[frame.Name] += frame.Self
		if !slices.Contains(above, frame.Name) {
			total[frame.Name] += frame.Total()
		}
		for _, c := range frame.Calls {
			walk(c, append(slices.Clone(above), frame.Name))
		}
	}
	walk(f.Root, nil)
	names := slices.SortedFunc(maps.Keys(self), func(a, b string) int {
		return cmp.Or(cmp.Compare(self[b], self[a]), cmp.Compare(total[b], total[a]), strings.Compare(a, b))
	})
	table := Table{
		Caption: f.Caption,
		Columns: []Column{{"Function", false}, {"Itself", true}, {"Share", true}, {"With what it called", true}, {"Share of that", true}},
	}
	all := f.Root.Total()
	for i, name := range names {
		if i == most {
			table.Note = fmt.Sprintf("The first %d of %s functions.", most, Count(float64(len(names))))
			break
		}
		table.Rows = append(table.Rows, Row{
			Code(name), Figure(self[name], f.amount(self[name])), sharePart(self[name], all),
			Figure(total[name], f.amount(total[name])), sharePart(total[name], all),
		})
	}
	return table
}

func sharePart(part, all float64) Cell {
	if all == 0 {
		return Missing()
	}
	return Figure(part/all, fmt.Sprintf("%.1f %%", 100*part/all))
}
