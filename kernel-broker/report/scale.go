// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strconv"
)

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

// ticks of the axis.
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
