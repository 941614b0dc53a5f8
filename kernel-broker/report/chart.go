// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strconv"
)

// Chart has a row for each thing that it shows. A row has bars that begin at 0,
// one behind the other, or a dot for each series with a line through it as long
// as its spread.
type Chart struct {
	Caption string
	// Axis says what the axis shows; Tick writes one of its values.
	Axis   string
	Tick   func(float64) string
	Series []Series
	Rows   []ChartRow
	// Reference, where there is one, is drawn as a line; 100 for per cents. The
	// axis shows at least Span on either side of it, so that a difference of
	// nothing does not fill the page, and need not begin at 0.
	Reference *float64
	Span      float64
}

// ChartRow has a size, or a dot, for each series. A dot that is nil is no figure.
type ChartRow struct {
	Label string
	Sizes []float64
	Dots  []*Dot
}

// Dot is one figure. Title describes it.
type Dot struct {
	Value, Spread float64
	Title         string
}

func (Chart) template() string { return "chart" }

// Histogram makes the rows of counts by power of two: counts[s][k] is how many of
// series s were at least 2^k units and below twice that. In row 0 are those below
// 1 unit too, as such counters keep them. Empty rows at the ends are left out.
func Histogram(counts [][]uint64, unit float64, bound func(float64) string) []ChartRow {
	length := 0
	for _, one := range counts {
		length = max(length, len(one))
	}
	var rows []ChartRow
	used := 0
	for k := range length {
		from := math.Ldexp(unit, k)
		if k == 0 {
			from = 0
		}
		row := ChartRow{Label: bound(from) + " to " + bound(math.Ldexp(unit, k+1)), Sizes: make([]float64, len(counts))}
		for s, one := range counts {
			if k < len(one) {
				row.Sizes[s] = float64(one[k])
			}
		}
		some := sum(row.Sizes) > 0
		if some || len(rows) > 0 {
			rows = append(rows, row)
		}
		if some {
			used = len(rows)
		}
	}
	return rows[:used]
}

// Geometry of the charts, in pixels of an unscaled page.
const (
	chartWidth  = 860.
	labelWidth  = 190.
	labelRunes  = 28
	totalWidth  = 90.
	axisHeight  = 34.
	dotDistance = 11.
	barHeight   = 16.
	rowPadding  = 10.
)

// ChartLayout is a chart as drawn.
type ChartLayout struct {
	Width, Height            float64
	Left, Right, Low, AxisAt float64
	Ticks                    []tick
	Reference                *float64
	Rows                     []rowLayout
}

type rowLayout struct {
	Label, Full         string
	Top, Height, Middle float64
	Band                bool
	Marks               []mark
	Bars                []bar
	TotalAt             float64
	Total               string
}

type mark struct {
	Class, Shape, Title string
	X, Y, From, To      float64
}

type bar struct {
	Class, Title        string
	X, Y, Width, Height float64
}

// Legend of the chart; a single series needs none.
func (c Chart) Legend() []Entry {
	var entries []Entry
	for _, s := range c.Series {
		entries = append(entries, s.entry())
	}
	if len(entries) < 2 {
		return nil
	}
	return entries
}

// Layout places everything.
func (c Chart) Layout() ChartLayout {
	axis := c.scale()
	out := ChartLayout{Width: chartWidth, Left: axis.left, Right: axis.right}
	for i, row := range c.Rows {
		height := max(barHeight, float64(len(row.Dots))*dotDistance) + rowPadding
		placed := rowLayout{Label: shorten(row.Label, labelRunes), Full: row.Label,
			Top: out.Low, Height: height, Middle: out.Low + height/2 + 4, Band: i%2 == 0}
		c.mark(&placed, axis, row)
		c.bars(&placed, axis, row)
		out.Rows = append(out.Rows, placed)
		out.Low += height
	}
	out.AxisAt, out.Height = out.Low+15, out.Low+axisHeight
	for _, v := range axis.ticks() {
		out.Ticks = append(out.Ticks, tick{axis.at(v), c.tick(v, axis.text)})
	}
	if c.Reference != nil {
		out.Reference = new(axis.at(*c.Reference))
	}
	return out
}

func (c Chart) mark(to *rowLayout, axis scale, row ChartRow) {
	for s, dot := range row.Dots {
		if dot == nil {
			continue
		}
		e := c.Series[s].entry()
		to.Marks = append(to.Marks, mark{Class: e.Class, Shape: e.Shape, Title: dot.Title,
			X: axis.at(dot.Value), Y: round(to.Top + rowPadding/2 + (float64(s)+0.5)*dotDistance),
			From: axis.at(dot.Value - dot.Spread/2), To: axis.at(dot.Value + dot.Spread/2)})
	}
}

func (c Chart) bars(to *rowLayout, axis scale, row ChartRow) {
	until := 0.0
	for s, size := range row.Sizes {
		if size <= 0 {
			continue
		}
		from, end := axis.at(until), axis.at(until+size)
		until += size
		to.Bars = append(to.Bars, bar{Class: c.Series[s].entry().Class, Title: fmt.Sprintf("%s, %s: %s", row.Label, c.Series[s].Name, c.tick(size, Count)),
			X: from, Y: to.Top + rowPadding/2, Width: round(end - from), Height: barHeight})
	}
	if len(row.Sizes) > 0 {
		to.TotalAt, to.Total = axis.at(until)+6, c.tick(until, Count)
	}
}

func (c Chart) tick(v float64, otherwise func(float64) string) string {
	if c.Tick != nil {
		return c.Tick(v)
	}
	return otherwise(v)
}

// scale that has room for everything, and for the totals behind bars.
func (c Chart) scale() scale {
	low, high := math.Inf(1), math.Inf(-1)
	include := func(from, to float64) { low, high = min(low, from), max(high, to) }
	ticks, right := 8, chartWidth-16
	if c.Reference != nil {
		include(*c.Reference-c.Span, *c.Reference+c.Span)
	}
	for _, row := range c.Rows {
		if len(row.Sizes) > 0 {
			include(0, sum(row.Sizes))
			ticks, right = 6, chartWidth-totalWidth
		}
		for _, dot := range row.Dots {
			if dot != nil {
				include(dot.Value-dot.Spread/2, dot.Value+dot.Spread/2)
			}
		}
	}
	if low > high {
		low, high = 0, 0
	}
	return newScale(low, high, labelWidth+12, right, ticks)
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}

// scale maps values to positions on a line.
type scale struct {
	from, to    float64 // values
	left, right float64 // positions
	step        float64
}

// same is how close two values are, relative to their size, to be one value on
// an axis: closer ones have ticks that floating point cannot tell apart.
const same = 1e-9

// newScale from the lowest to the highest value, widened to round numbers.
func newScale(low, high, left, right float64, ticks int) scale {
	if !(high-low > same*max(math.Abs(low), math.Abs(high))) {
		middle := low
		low, high = middle-1, middle+1
		if middle != 0 {
			low, high = middle-math.Abs(middle)/10, middle+math.Abs(middle)/10
		}
	}
	step := niceStep((high - low) / float64(max(1, ticks)))
	from, to := math.Floor(low/step)*step, math.Ceil(high/step)*step
	return scale{from: from, to: to, left: left, right: right, step: step}
}

// niceStep is 1, 2 or 5 times a power of ten, not below what is asked for.
func niceStep(rough float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= rough*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// at is where a value is; what lies outside is put to the edge.
func (s scale) at(v float64) float64 {
	share := (v - s.from) / (s.to - s.from)
	return round(s.left + min(max(share, 0), 1)*(s.right-s.left))
}

func (s scale) ticks() []float64 {
	var out []float64
	count := int(math.Round((s.to - s.from) / s.step))
	for i := 0; i <= count; i++ {
		v := s.from + float64(i)*s.step
		if math.Abs(v) < s.step/1e6 {
			v = 0
		}
		out = append(out, v)
	}
	return out
}

// text of a tick, with as many digits as tell it from the next.
func (s scale) text(v float64) string {
	return strconv.FormatFloat(v, 'f', max(0, -int(math.Floor(math.Log10(s.step)+1e-9))), 64)
}

// round to a tenth of a pixel: more digits only make the file longer.
func round(v float64) float64 { return math.Round(v*10) / 10 }

// tick of an axis as drawn.
type tick struct {
	At   float64
	Text string
}

// seriesColours is how many series a chart can tell apart. Each has a shape of
// its own too, so that colour is not needed.
const seriesColours = 8

// shapes of the marks, around a middle of 0,0.
var shapes = [seriesColours]string{
	"M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z", // disc
	"M-4,-4h8v8h-8z",                      // square
	"M0,-5.5l5.5,5.5l-5.5,5.5l-5.5,-5.5z", // diamond
	"M0,-5l5,9h-10z",                      // triangle up
	"M0,5l5,-9h-10z",                      // triangle down
	"M-1.5,-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z", // plus
	"M-5,0l9,-5v10z", // triangle left
	"M-5,-3l2,-2l3,3l3,-3l2,2l-3,3l3,3l-2,2l-3,-3l-3,3l-2,-2l3,-3z", // cross
}

// Series of a chart. Colour is its number from 0, so that the same thing has
// the same colour and shape in each chart of a page.
type Series struct {
	Name   string
	Colour int
}

// Named gives series their colours in turn.
func Named(names ...string) []Series {
	out := make([]Series, len(names))
	for i, name := range names {
		out[i] = Series{name, i}
	}
	return out
}

type Entry struct {
	Name  string
	Class string
	Shape string
}

func (s Series) entry() Entry {
	number := s.Colour % seriesColours
	return Entry{Name: s.Name, Class: fmt.Sprintf("s%d", number), Shape: shapes[number]}
}

// shorten a label to what has room; the whole stands in the mark's title.
func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:max(1, most-1)]) + "…"
}
