// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Table whose columns can be sorted. The first cell of a row is its heading.
type Table struct {
	// Caption says what the figures are; every table has one.
	Caption string
	Columns []Column
	Rows    []Row
	// Foot are rows that stay below, such as means.
	Foot []Row
	// Note stands below.
	Note string
}

func (Table) template() string { return "table" }

type Column struct {
	Title string
	// Numeric columns are set to the right, and sort by number.
	Numeric bool
}

type Row []Cell

type Cell struct {
	Text string
	// Value that a numeric column sorts by; without one the cell sorts last.
	Value *float64
	// Shade from -3 (much less, better) to 3 (much more, worse), 0 for none.
	// The text has to say it too.
	Shade int
	// Strong cells stand out.
	Strong bool
	// Code is set in a fixed width.
	Code bool
}

func Text(text string) Cell { return Cell{Text: text} }

// Code makes a cell in a fixed width.
func Code(text string) Cell { return Cell{Text: text, Code: true} }

// Figure makes a cell of a number, in the words given.
func Figure(value float64, text string) Cell { return Cell{Text: text, Value: &value} }

func Missing() Cell { return Cell{Text: "–"} }

func (c Cell) Class() string {
	class := ""
	switch {
	case c.Shade < 0:
		class = fmt.Sprintf("less%d", min(-c.Shade, 3))
	case c.Shade > 0:
		class = fmt.Sprintf("more%d", min(c.Shade, 3))
	}
	if c.Strong {
		class += " strong"
	}
	return class
}

// ErrRagged is a row with more or fewer cells than there are columns.
var ErrRagged = errors.New("row does not fit the columns")

// Check the table's form; a document that holds it is not written otherwise. It returns nothing, for the template.
func (t Table) Check() (string, error) {
	for _, row := range slices.Concat(t.Rows, t.Foot) {
		if len(row) != len(t.Columns) {
			return "", fmt.Errorf("table %q: %d cells, %d columns: %w", t.Caption, len(row), len(t.Columns), ErrRagged)
		}
	}
	return "", nil
}

// hasSentences reports whether a row has more text than two lines of a terminal.
func (t Table) hasSentences() bool {
	return slices.ContainsFunc(t.Rows, func(row Row) bool {
		size := 0
		for _, cell := range row {
			size += utf8.RuneCountInString(cell.Text)
		}
		return size > 2*lineWidth
	})
}

// placed is a cell with its column, as the template wants it.
type placed struct {
	Cell
	Numeric bool
	Heading bool
}

func place(cell Cell, column Column, i int) placed { return placed{cell, column.Numeric, i == 0} }
