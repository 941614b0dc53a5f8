// SPDX-License-Identifier: Apache-2.0

package report

// Dots compares series in many rows: each row has a dot for each series, and a
// line through it as long as the spread. An axis of dots need not begin at 0,
// so that differences of a few per cent can be seen.
type Dots struct {
	Caption string
	// Axis says what the axis shows.
	Axis   string
	Series []Series
	Rows   []DotRow
	// Reference, where there is one, is drawn as a line; 100 for per cents.
	Reference *float64
	// Span is the least that the axis shows on either side of the reference,
	// so that a difference of nothing does not fill the page.
	Span float64
}

// DotRow is one row: a dot for each series, nil where there is no figure.
type DotRow struct {
	Label string
	Dots  []*Dot
}

// Dot is one figure. Title describes it.
type Dot struct {
	Value, Spread float64
	Title         string
}

func (Dots) template() string { return "dots" }

// Geometry of the charts, in pixels of an unscaled page.
const (
	chartWidth  = 860.
	labelWidth  = 190.
	labelRunes  = 28
	axisHeight  = 34.
	dotDistance = 11.
	rowPadding  = 10.
)

// DotsLayout is a chart as drawn.
type DotsLayout struct {
	Width, Height    float64
	Left, Right, Low float64
	Ticks            []tick
	Reference        *float64
	Rows             []dotRowLayout
	AxisAt           float64
}

type dotRowLayout struct {
	Label, Full         string
	Top, Height, Middle float64
	Band                bool
	Marks               []mark
}

type mark struct {
	Class, Shape, Title string
	X, Y, From, To      float64
}

// Legend of the chart.
func (d Dots) Legend() []Entry { return legend(d.Series) }

// Layout places everything.
func (d Dots) Layout() DotsLayout {
	axis := d.scale()
	out := DotsLayout{Width: chartWidth, Left: axis.left, Right: axis.right}
	height := max(1, float64(len(d.Series)))*dotDistance + rowPadding
	for i, row := range d.Rows {
		placed := dotRowLayout{
			Label: shorten(row.Label, labelRunes), Full: row.Label,
			Top: float64(i) * height, Height: height, Middle: (float64(i)+0.5)*height + 4, Band: i%2 == 0,
		}
		for s, dot := range row.Dots {
			if dot == nil {
				continue
			}
			e := d.Series[s].entry()
			placed.Marks = append(placed.Marks, mark{
				Class: e.Class, Shape: e.Shape, Title: dot.Title,
				X: axis.at(dot.Value), Y: round(placed.Top + rowPadding/2 + (float64(s)+0.5)*dotDistance),
				From: axis.at(dot.Value - dot.Spread/2), To: axis.at(dot.Value + dot.Spread/2),
			})
		}
		out.Rows = append(out.Rows, placed)
	}
	out.Low = float64(len(d.Rows)) * height
	out.AxisAt = out.Low + 15
	out.Height = out.Low + axisHeight
	for _, v := range axis.ticks() {
		out.Ticks = append(out.Ticks, tick{axis.at(v), axis.text(v)})
	}
	if d.Reference != nil {
		at := axis.at(*d.Reference)
		out.Reference = &at
	}
	return out
}

func (d Dots) scale() scale {
	var low, high float64
	first := true
	include := func(v float64) {
		if first || v < low {
			low = v
		}
		if first || v > high {
			high = v
		}
		first = false
	}
	if d.Reference != nil {
		include(*d.Reference - d.Span)
		include(*d.Reference + d.Span)
	}
	for _, row := range d.Rows {
		for _, dot := range row.Dots {
			if dot != nil {
				include(dot.Value - dot.Spread/2)
				include(dot.Value + dot.Spread/2)
			}
		}
	}
	return newScale(low, high, labelWidth+12, chartWidth-16, 8)
}
