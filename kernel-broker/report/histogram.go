// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
)

// Histogram shows how values are distributed over buckets, each split into the
// same series (one, when there is nothing to tell apart).
type Histogram struct {
	Caption string
	// Axis says what is counted in which buckets.
	Axis   string
	Series []Series
	// Bound writes the bound of a bucket, Seconds for times.
	Bound   func(float64) string
	Buckets []Bucket
}

// Bucket holds what is at least From and below To.
type Bucket struct {
	From, To float64
	Counts   []float64
}

func (Histogram) template() string { return "histogram" }

// Log2 makes the buckets of counts by power of two: counts[s][k] is how many
// of series s were at least 2^k units and below twice that. In bucket 0 are
// those below 1 unit too, as such counters keep them. Empty buckets at the
// ends are left out.
func Log2(counts [][]uint64, unit float64) []Bucket {
	length := 0
	for _, one := range counts {
		length = max(length, len(one))
	}
	first, last := length, -1
	for k := range length {
		for _, one := range counts {
			if k < len(one) && one[k] > 0 {
				first, last = min(first, k), k
			}
		}
	}
	var buckets []Bucket
	for k := first; k <= last; k++ {
		b := Bucket{From: math.Ldexp(unit, k), To: math.Ldexp(unit, k+1), Counts: make([]float64, len(counts))}
		if k == 0 {
			b.From = 0
		}
		for s, one := range counts {
			if k < len(one) {
				b.Counts[s] = float64(one[k])
			}
		}
		buckets = append(buckets, b)
	}
	return buckets
}

const (
	histogramHeight = 190.
	histogramLeft   = 70.
	widestBar       = 60.
)

// HistogramLayout is a chart as drawn.
type HistogramLayout struct {
	Width, Height, Left, Right, Low, AxisAt float64
	// Counts are the ticks of the upright axis, Bounds those of the other.
	Counts, Bounds []tick
	Bars           []segment
}

// Legend of the chart; a single series needs none.
func (h Histogram) Legend() []Entry {
	if len(h.Series) < 2 {
		return nil
	}
	return legend(h.Series)
}

// Layout places everything.
func (h Histogram) Layout() HistogramLayout {
	most := 0.0
	for _, b := range h.Buckets {
		most = max(most, sum(b.Counts))
	}
	low := histogramHeight
	axis := newScale(0, most, low, 10, 4)
	width := min(widestBar, (chartWidth-histogramLeft-16)/max(1, float64(len(h.Buckets))))
	out := HistogramLayout{
		Width: chartWidth, Height: low + axisHeight, Left: histogramLeft, Low: low, AxisAt: low + 15,
		Right: histogramLeft + width*max(1, float64(len(h.Buckets))),
	}
	for _, v := range axis.ticks() {
		out.Counts = append(out.Counts, tick{axis.at(v), Count(v)})
	}
	// A label needs room for about nine digits.
	each := max(1, int(math.Ceil(55/width)))
	for i, b := range h.Buckets {
		x := histogramLeft + float64(i)*width
		if i%each == 0 {
			out.Bounds = append(out.Bounds, tick{round(x), h.bound(b.From)})
		}
		until := 0.0
		for s, count := range b.Counts {
			if count <= 0 || s >= len(h.Series) {
				continue
			}
			top, bottom := axis.at(until+count), axis.at(until)
			until += count
			out.Bars = append(out.Bars, segment{
				Class: h.Series[s].entry().Class, Title: fmt.Sprintf("%s, %s to %s: %s", h.Series[s].Name, h.bound(b.From), h.bound(b.To), Count(count)),
				X: round(x + 1), Y: top, Width: round(width - 2), Height: round(bottom - top),
			})
		}
	}
	return out
}

func (h Histogram) bound(v float64) string {
	if h.Bound == nil {
		return Count(v)
	}
	return h.Bound(v)
}

// Table of the same figures, for who cannot see the chart.
func (h Histogram) Table() Table {
	table := Table{Caption: h.Caption, Columns: []Column{{"From", true}, {"To below", true}}}
	for _, s := range h.Series {
		table.Columns = append(table.Columns, Column{s.Name, true})
	}
	for _, b := range h.Buckets {
		row := Row{Figure(b.From, h.bound(b.From)), Figure(b.To, h.bound(b.To))}
		for s := range h.Series {
			cell := Missing()
			if s < len(b.Counts) {
				cell = Figure(b.Counts[s], Count(b.Counts[s]))
			}
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}
