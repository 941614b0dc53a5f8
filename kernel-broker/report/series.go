// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

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

// Entry of a legend.
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
