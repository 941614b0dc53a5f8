// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// Stack shows sizes as bars that begin at 0, each made of the same segments.
type Stack struct {
	Caption string
	// Axis says what the axis shows; Tick writes one of its values.
	Axis     string
	Tick     func(float64) string
	Segments []Series
	Rows     []StackRow
}

// StackRow is one bar, with a size for each segment.
type StackRow struct {
	Label string
	Sizes []float64
}

func (Stack) template() string { return "stack" }

const (
	barHeight   = 20.
	barDistance = 30.
)

// StackLayout is a chart as drawn.
type StackLayout struct {
	Width, Height    float64
	Left, Right, Low float64
	AxisAt           float64
	Ticks            []tick
	Rows             []stackRowLayout
}

type stackRowLayout struct {
	Label, Full string
	Middle      float64
	Segments    []segment
	TotalAt     float64
	Total       string
}

type segment struct {
	Class, Title        string
	X, Y, Width, Height float64
}

// Legend of the chart.
func (s Stack) Legend() []Entry { return legend(s.Segments) }

// Layout places everything.
func (s Stack) Layout() StackLayout {
	most := 0.0
	for _, row := range s.Rows {
		most = max(most, sum(row.Sizes))
	}
	axis := newScale(0, most, labelWidth+12, chartWidth-90, 6)
	out := StackLayout{Width: chartWidth, Left: axis.left, Right: axis.right}
	for i, row := range s.Rows {
		top := float64(i)*barDistance + 4
		placed := stackRowLayout{
			Label: shorten(row.Label, labelRunes), Full: row.Label, Middle: top + barHeight/2 + 4,
			Total: s.tick(sum(row.Sizes)),
		}
		until := 0.0
		for n, size := range row.Sizes {
			if size <= 0 {
				continue
			}
			from, to := axis.at(until), axis.at(until+size)
			until += size
			placed.Segments = append(placed.Segments, segment{
				Class: s.Segments[n].entry().Class, Title: fmt.Sprintf("%s, %s: %s", row.Label, s.Segments[n].Name, s.tick(size)),
				X: from, Y: top, Width: round(to - from), Height: barHeight,
			})
		}
		placed.TotalAt = axis.at(until) + 6
		out.Rows = append(out.Rows, placed)
	}
	out.Low = float64(len(s.Rows))*barDistance + 4
	out.AxisAt = out.Low + 15
	out.Height = out.Low + axisHeight
	for _, v := range axis.ticks() {
		out.Ticks = append(out.Ticks, tick{axis.at(v), s.tick(v)})
	}
	return out
}

func (s Stack) tick(v float64) string {
	if s.Tick != nil {
		return s.Tick(v)
	}
	return Count(v)
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}
