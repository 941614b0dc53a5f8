// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WriteText writes the document for a terminal: all but the charts, whose
// figures stand in the tables, and what is folded away, of which it says that it
// is there.
func (d Document) WriteText(w io.Writer) error {
	if err := d.check(); err != nil {
		return fmt.Errorf("page %q: %w", d.Title, err)
	}
	t := &textWriter{}
	t.line(d.Title)
	t.line(strings.Repeat("=", utf8.RuneCountInString(d.Title)))
	t.paragraph(d.Lead)
	for _, section := range d.Sections {
		t.line("")
		t.line(section.Title)
		t.line(strings.Repeat("-", utf8.RuneCountInString(section.Title)))
		t.paragraph(section.Lead)
		for _, part := range section.Components {
			if err := t.part(part); err != nil {
				return fmt.Errorf("page %q: %w", d.Title, err)
			}
		}
	}
	if d.Foot != "" {
		t.line("")
		t.paragraph(d.Foot)
	}
	if _, err := io.WriteString(w, t.out.String()); err != nil {
		return fmt.Errorf("page %q: %w", d.Title, err)
	}
	return nil
}

type textWriter struct{ out strings.Builder }

// line without what would move a terminal's cursor or change its colours.
func (t *textWriter) line(text string) {
	t.out.WriteString(strings.TrimRight(visible(text), " "))
	t.out.WriteByte('\n')
}

func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func (t *textWriter) part(part Component) error {
	switch p := part.(type) {
	case Paragraph:
		t.paragraph(string(p))
	case Notice:
		t.paragraph(p.Title + " " + p.Text)
	case List:
		for _, one := range p {
			t.paragraph("- " + one)
		}
	case Facts:
		t.facts(p)
	case Table:
		return t.table(p)
	case Folded:
		t.paragraph("+ " + p.Title + " (on the page)")
	}
	return nil
}

const lineWidth = 80

// paragraph broken into lines between words.
func (t *textWriter) paragraph(text string) {
	for i, line := range wrap(text, lineWidth, lineWidth-2, false) {
		if i > 0 {
			line = "  " + line
		}
		t.line(line)
	}
}

// wrap breaks text into lines between words, and with cut within a word that has no room alone.
func wrap(text string, first, next int, cut bool) (lines []string) {
	line, width := "", first
	for _, word := range strings.Fields(text) {
		if size := utf8.RuneCountInString(word); line != "" && utf8.RuneCountInString(line)+1+size > width {
			lines, line, width = append(lines, line), "", next
		} else if line != "" {
			line += " "
		}
		line += word
		for all := []rune(line); cut && len(all) > width; all = []rune(line) {
			lines, line, width = append(lines, string(all[:width])), string(all[width:]), next
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

func (t *textWriter) facts(facts Facts) {
	width := 0
	for _, f := range facts {
		width = max(width, utf8.RuneCountInString(visible(f.Name)))
	}
	for _, f := range facts {
		name, room := visible(f.Name), max(20, lineWidth-width-columnGap)
		lines := wrap(f.Text, room, room, false)
		for i, line := range append(lines, make([]string, max(0, 1-len(lines)))...) {
			if i > 0 {
				name = ""
			}
			t.line(pad(name, width+columnGap, false) + line)
		}
	}
}

const columnGap = 2

func (t *textWriter) table(table Table) error {
	if _, err := table.Check(); err != nil {
		return err
	}
	t.line("")
	t.paragraph(table.Caption)
	if table.hasSentences() {
		t.records(table)
	} else {
		t.columns(table)
	}
	t.paragraph(table.Note)
	return nil
}

func (t *textWriter) columns(table Table) {
	heading := make(Row, len(table.Columns))
	for i, column := range table.Columns {
		heading[i] = Text(strings.ToUpper(column.Title))
	}
	rows := append(append([]Row{heading}, table.Rows...), table.Foot...)
	widths := widthsOf(table.Columns, rows)
	for n, columns := range inBlocks(widths) {
		if n > 0 {
			t.line("")
		}
		for i, row := range rows {
			if len(table.Foot) > 0 && i == 1+len(table.Rows) {
				t.line("")
			}
			t.row(table.Columns, columns, widths, row)
		}
	}
}

// records writes each row by itself, as facts below its first cell.
func (t *textWriter) records(table Table) {
	for _, row := range slices.Concat(table.Rows, table.Foot) {
		t.paragraph("- " + row[0].Text)
		var facts Facts
		for i, cell := range row[1:] {
			facts = append(facts, Fact{Name: "  " + table.Columns[i+1].Title, Text: cell.Text})
		}
		t.facts(facts)
	}
}

// leastText is as narrow as a column of text gets; only words longer than mostWord are cut.
const (
	leastText = 16
	mostWord  = 30
)

// widthsOf are the columns', the widest made narrower where a line has no room: a figure is never broken, a title between words.
func widthsOf(columns []Column, rows []Row) (widths []int) {
	least, total := make([]int, len(columns)), -columnGap
	for i, column := range columns {
		width := 0
		for n, row := range rows {
			text := visible(row[i].Text)
			width = max(width, utf8.RuneCountInString(text))
			if n > 0 && column.Numeric {
				least[i] = max(least[i], utf8.RuneCountInString(text))
			}
			for word := range strings.FieldsSeq(text) {
				if n == 0 || !column.Numeric {
					least[i] = max(least[i], min(utf8.RuneCountInString(word), mostWord))
				}
			}
		}
		if !column.Numeric {
			least[i] = min(width, max(least[i], leastText))
		}
		widths = append(widths, width)
		total += width + columnGap
	}
	for ; total > lineWidth; total-- {
		widest := -1
		for i := range widths {
			if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// inBlocks divides columns that have no room in one line; the first one, which names the row, is in each block.
func inBlocks(widths []int) (blocks [][]int) {
	block, total := []int{}, 0
	for i, width := range widths {
		if len(block) > 1 && total+columnGap+width > lineWidth {
			blocks = append(blocks, block)
			block, total = []int{0}, widths[0]
		}
		block = append(block, i)
		if total += width; i > 0 {
			total += columnGap
		}
	}
	return append(blocks, block)
}

func (t *textWriter) row(columns []Column, shown, widths []int, row Row) {
	cells, height := make([][]string, len(shown)), 1
	for i, column := range shown {
		cells[i] = []string{visible(row[column].Text)}
		if width := widths[column]; utf8.RuneCountInString(cells[i][0]) > width {
			cells[i] = wrap(cells[i][0], width, width, true)
		}
		height = max(height, len(cells[i]))
	}
	for at := range height {
		var line strings.Builder
		for i, column := range shown {
			text := ""
			if at < len(cells[i]) {
				text = cells[i][at]
			}
			if i > 0 {
				line.WriteString(strings.Repeat(" ", columnGap))
			}
			line.WriteString(pad(text, widths[column], columns[column].Numeric))
		}
		t.line(line.String())
	}
}

func pad(text string, width int, left bool) string {
	space := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if left {
		return space + text
	}
	return text + space
}

// Count writes a number of things: whole from a hundred on, with three digits
// below, thousands apart.
func Count(v float64) string {
	size := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case size >= 99.95 || v == math.Trunc(v):
		return thousands(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
	case size < 0.001:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(size))))
	return strconv.FormatFloat(v, 'f', digits, 64)
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}

// Bytes in KiB, MiB or GiB.
func Bytes(n int64) string {
	switch {
	case n >= 1<<30 || n <= -1<<30:
		return significant(float64(n)/(1<<30)) + " GiB"
	case n >= 1<<20 || n <= -1<<20:
		return significant(float64(n)/(1<<20)) + " MiB"
	case n >= 1<<10 || n <= -1<<10:
		return significant(float64(n)/(1<<10)) + " KiB"
	}
	return fmt.Sprintf("%d B", n)
}

// significant rounds to three digits, and to whole numbers above.
func significant(v float64) string {
	if size := math.Abs(v); size >= 99.95 || size == 0 {
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	}
	return strconv.FormatFloat(v, 'f', 2-int(math.Floor(math.Log10(math.Abs(v)*1.0005))), 64)
}

// short is significant without zeros at the end.
func short(v float64) string {
	text := significant(v)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// Seconds with a unit that leaves one to three digits before the point, rounded to three; from a
// thousand seconds on they are whole, thousands apart.
func Seconds(v float64) string {
	if math.Abs(v) >= 1000 {
		return Count(v) + " s"
	}
	for _, unit := range []struct {
		name string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if math.Abs(v) >= unit.size {
			return short(v/unit.size) + " " + unit.name
		}
	}
	return short(v/1e-9) + " ns"
}
