// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// Marks at the beginning of a column's title.
const (
	wide  = "+" // only --output wide shows it
	below = "/" // a sentence, which stands below its row
)

// columnWidth is the width of a page that is not for a terminal.
const columnWidth = 80

const (
	columnGap  = 2
	belowInset = 4
	// leastColumn is as narrow as a column with words gets, so that a sentence does not become a pillar.
	leastColumn = 8
)

// rows are lines of cells that follow each other. The first is their header, unless they are the fields of one thing.
type rows struct {
	titles []string
	cells  [][]string
}

// head begins a table.
func (p *page) head(titles ...string) {
	p.flush()
	p.rows = &rows{titles: titles}
}

// row adds a line of a table, or a field and its value.
func (p *page) row(cells ...any) {
	if p.rows == nil {
		p.rows = &rows{}
	}
	texts := make([]string, len(cells))
	for i, cell := range cells {
		if d, ok := cell.(time.Duration); ok {
			cell = rounded.Time(d)
		}
		texts[i] = strings.Join(strings.Fields(plain(fmt.Sprint(cell))), " ")
	}
	p.rows.cells = append(p.rows.cells, texts)
}

// flush ends a table.
func (p *page) flush() {
	if p.rows != nil {
		p.text.WriteString(p.rows.render(p.width))
		p.rows = nil
	}
}

// render lays the table out in a width; 0 is one line for each row, with all columns.
func (r *rows) render(width int) string {
	shown, lower := r.columns(width)
	lines := r.pick(shown)
	if lower != nil {
		// A sentence stands beside the others where there is room for all.
		beside := append(slices.Clone(shown), lower...)
		slices.Sort(beside)
		if all := r.pick(beside); total(fit(all, 0, true)) <= width {
			lines, lower = all, nil
		}
	}
	widths := fit(lines, width, r.titles != nil)
	var out strings.Builder
	var segment [][]string
	flush := func() {
		out.WriteString(lay(segment, widths))
		segment = nil
	}
	for i, line := range lines {
		segment = append(segment, line)
		of := i
		if r.titles != nil {
			of--
		}
		for _, column := range lower {
			if of < 0 || r.cells[of][column] == "" {
				continue
			}
			flush()
			out.WriteString(indented(r.cells[of][column], belowInset, width))
		}
	}
	flush()
	return out.String()
}

// columns are those that stand side by side, and those whose text stands below the row.
func (r *rows) columns(width int) (shown, lower []int) {
	if r.titles == nil {
		for i := range r.cells[0] {
			shown = append(shown, i)
		}
		return shown, nil
	}
	for i, title := range r.titles {
		empty := !slices.ContainsFunc(r.cells, func(cells []string) bool { return cells[i] != "" })
		switch {
		case width == 0:
			shown = append(shown, i)
		case strings.HasPrefix(title, wide), empty && i > 0:
		case strings.HasPrefix(title, below):
			lower = append(lower, i)
		default:
			shown = append(shown, i)
		}
	}
	return shown, lower
}

// pick returns the lines, with their header, of some columns.
func (r *rows) pick(columns []int) (lines [][]string) {
	of := func(cells []string, none string) []string {
		line := make([]string, len(columns))
		for i, column := range columns {
			if column < len(cells) {
				line[i] = cmp.Or(cells[column], none)
			}
		}
		return line
	}
	if r.titles != nil {
		titles := slices.Clone(r.titles)
		for i := range titles {
			titles[i] = strings.TrimLeft(titles[i], wide+below)
		}
		lines = append(lines, of(titles, ""))
	}
	for _, cells := range r.cells {
		lines = append(lines, of(cells, "-"))
	}
	return lines
}

// fit returns the columns' widths. The widest gives way first, down to its longest word and, if that does not do, further.
func fit(lines [][]string, width int, table bool) []int {
	widths := make([]int, len(lines[0]))
	words := slices.Clone(widths)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], text.StringWidth(cell))
			for _, word := range piece.FindAllString(cell, -1) {
				words[i] = max(words[i], text.StringWidth(strings.TrimRight(word, " ")))
			}
		}
	}
	if width == 0 {
		return widths
	}
	least := make([]int, len(widths))
	for i := range least {
		least[i] = min(widths[i], max(words[i], leastColumn))
	}
	over := total(widths) - width
	floors := [][]int{least}
	if table {
		// A field's value, such as a digest, is copied: it may be too wide, and is not broken.
		floors = append(floors, make([]int, len(widths)))
	}
	for _, floor := range floors {
		for ; over > 0; over-- {
			widest := -1
			for i, w := range widths {
				if w > max(floor[i], 1) && (widest < 0 || w > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
		}
	}
	return widths
}

// total is the width of a line of columns.
func total(widths []int) int {
	sum := columnGap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// piece is what a line may end after: a word, or an item of a list of nodes or of states.
var piece = regexp.MustCompile(`[^ ,+]*[ ,+]*`)

// lay aligns lines in columns of these widths.
func lay(lines [][]string, widths []int) string {
	if len(lines) == 0 {
		return ""
	}
	w := table.NewWriter()
	style := table.Style{Box: table.StyleBoxDefault, Options: table.OptionsNoBordersAndSeparators}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", columnGap)
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	columns := make([]table.ColumnConfig, len(widths))
	for i, width := range widths {
		columns[i] = table.ColumnConfig{Number: i + 1, WidthMin: width, WidthMax: width, WidthMaxEnforcer: wrapped}
	}
	w.SetColumnConfigs(columns)
	for _, line := range lines {
		row := make(table.Row, len(line))
		for i, cell := range line {
			row[i] = cell
		}
		w.AppendRow(row)
	}
	return w.Render() + "\n"
}

// wrapped breaks a text after a piece, or in one that is wider.
func wrapped(cell string, width int) string {
	lines := []string{""}
	for _, next := range piece.FindAllString(cell, -1) {
		last := &lines[len(lines)-1]
		switch {
		case text.StringWidth(*last+strings.TrimRight(next, " ")) <= width:
			*last += next
		case *last != "":
			lines = append(lines, "")
			last = &lines[len(lines)-1]
			fallthrough
		default:
			parts := strings.Split(text.WrapHard(next, width), "\n")
			*last = parts[0]
			lines = append(lines, parts[1:]...)
		}
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// paragraph adds text for people that is set in from the left.
func (p *page) paragraph(inset int, format string, args ...any) {
	p.flush()
	p.text.WriteString(indented(plain(fmt.Sprintf(format, args...)), inset, p.width))
}

// sentence adds text for people outside a table.
func (p *page) sentence(format string, args ...any) { p.paragraph(0, format, args...) }

// indented is a paragraph in a width; 0 is no limit.
func indented(paragraph string, inset, width int) string {
	if width > 0 {
		paragraph = text.WrapSoft(paragraph, max(width-inset, 1))
	}
	var out strings.Builder
	for line := range strings.SplitSeq(paragraph, "\n") {
		out.WriteString(strings.TrimRight(strings.Repeat(" ", inset)+strings.TrimRight(line, " "), " ") + "\n")
	}
	return out.String()
}
