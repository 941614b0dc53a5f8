// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Flame is a call graph as nested bars: below each function those that it
// called, as wide as what they cost. A click makes a function as wide as the
// page, and what is searched for is marked; without a script it stands still. It is one stop of the Tab key: arrow keys move in it.
type Flame struct {
	Caption string
	Axis    string
	Root    *Frame
	// Narrowest share of the whole that is drawn; 0 for a fifth of a pixel.
	Narrowest float64
}

// Frame is a function as called on one way, with what it cost without and with
// what it called.
type Frame struct {
	Name        string
	Self, Total float64
	calls       []*Frame
}

// Add a stack below the frame, the outermost function first.
func (f *Frame) Add(stack []string, seconds float64) {
	f.Total += seconds
	if len(stack) == 0 {
		f.Self += seconds
		return
	}
	i := slices.IndexFunc(f.calls, func(c *Frame) bool { return c.Name == stack[0] })
	if i < 0 {
		i = len(f.calls)
		f.calls = append(f.calls, &Frame{Name: stack[0]})
	}
	f.calls[i].Add(stack[1:], seconds)
}

func (Flame) template() string { return "flame" }

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

// Level as assistive technology counts it, from 1.
func (f frameLayout) Level() int { return f.Depth + 1 }

// Layout places everything.
func (f Flame) Layout() FlameLayout {
	out := FlameLayout{Width: chartWidth, Height: frameHeight}
	if f.Root != nil && f.Root.Total > 0 {
		f.place(&out, f.Root, 0, 0)
	}
	return out
}

// place a frame and, the costly first, what it called.
func (f Flame) place(out *FlameLayout, frame *Frame, from float64, depth int) {
	share := frame.Total / f.Root.Total
	if !(share >= cmp.Or(f.Narrowest, 0.2/chartWidth)) {
		out.LeftOut++
		return
	}
	out.Height = max(out.Height, float64(depth+1)*frameHeight)
	placed := frameLayout{
		Class: fmt.Sprintf("heat%d", heat(frame.Name)), Name: frame.Name,
		Title: fmt.Sprintf("%s: %s, %.4g %% of all; itself %s", frame.Name, Seconds(frame.Total), 100*share, Seconds(frame.Self)),
		X:     round(from * chartWidth), Y: float64(depth) * frameHeight, Width: round(share * chartWidth), Height: frameHeight - 1,
		From: from, Share: share, Depth: depth,
	}
	placed.TextX, placed.TextY = placed.X+3, placed.Y+13
	if letters := int((placed.Width - 6) / letterWidth); letters >= 3 {
		placed.Label = shorten(frame.Name, letters)
	}
	out.Frames = append(out.Frames, placed)
	for _, called := range slices.SortedStableFunc(slices.Values(frame.calls), func(a, b *Frame) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.Name, b.Name))
	}) {
		f.place(out, called, from, depth+1)
		from += called.Total / f.Root.Total
	}
}

// heat gives a function the same tint wherever it stands.
func heat(name string) uint32 {
	sum := fnv.New32a()
	// A hash never fails to be written to.
	_, _ = sum.Write([]byte(name))
	return sum.Sum32() % heats
}
