// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"text/template"
)

// View is a template that says what a document has in it. It writes nothing:
// its calls put the document together from top to bottom.
//
//	page TITLE LEAD FOOT      section ID TITLE LEAD
//	p TEXT                    item TEXT (of a list)       add COMPONENT
//	notice MOOD TITLE TEXT    fact NAME TEXT              codefact NAME TEXT
//	fold TITLE ... endfold    shown only when asked for
//	table CAPTION             columns, then rows, follow; without rows it is left out
//	words TITLE...            columns of words            numbers TITLE...  of figures
//	row CELL...               foot CELL...                cell CELL...  more of the last row
//	note TEXT                 below the table
//	first N LIST              the first of a list, with a note of how many there are
//
// A cell is made by code, strong or plain (a number in no groups of three), or is a
// text or a number of things. What has nothing in it
// is left out, as are facts, items and paragraphs without text.
type View struct{ parsed *template.Template }

// NewView reads a view that may call funcs besides.
func NewView(text string, funcs template.FuncMap) View {
	return View{template.Must(template.New("view").Funcs((&builder{}).calls()).Funcs(funcs).Parse(text))}
}

// Document of the data. An error of the view is the document's, which is then not
// written.
func (v View) Document(data any) Document {
	b := &builder{}
	t, err := v.parsed.Clone()
	if err == nil {
		err = t.Funcs(b.calls()).Execute(io.Discard, data)
	}
	if err == nil && len(b.folded) > 0 {
		err = fmt.Errorf("fold %q does not end: %w", b.folded[0].Title, ErrView)
	}
	b.endTable()
	b.doc.Sections = slices.DeleteFunc(b.doc.Sections, func(s Section) bool { return len(s.Components) == 0 })
	b.doc.broken = err
	return b.doc
}

// builder is a document as far as it is put together: a table goes to the
// components when its last row is there.
type builder struct {
	doc    Document
	table  *Table
	last   *Row
	folded []Folded
}

// ErrView is a call of a view in the wrong place. The calls panic with it, which the
// template returns as its error.
var ErrView = errors.New("a view calls for what has no place there")

func (b *builder) calls() template.FuncMap {
	fact := func(code bool) func(string, any) string {
		return func(name string, v any) string {
			return b.text(v, func(text string) Component { return Facts{{name, text, code}} })
		}
	}
	return template.FuncMap{
		"page": func(title, lead, foot string) string {
			b.doc.Title, b.doc.Lead, b.doc.Foot = title, lead, foot
			return ""
		},
		"section": func(id, title, lead string) string {
			b.endTable()
			b.doc.Sections = append(b.doc.Sections, Section{ID: id, Title: title, Lead: lead})
			return ""
		},
		"fold": func(title string) string {
			b.endTable()
			b.folded = append(b.folded, Folded{Title: title})
			return ""
		},
		"endfold": b.endFold,
		"table": func(caption string) string {
			b.endTable()
			b.place()
			b.table = &Table{Caption: caption}
			return ""
		},
		"p":        func(v any) string { return b.text(v, func(text string) Component { return Paragraph(text) }) },
		"item":     func(v any) string { return b.text(v, func(text string) Component { return List{text} }) },
		"fact":     fact(false),
		"codefact": fact(true),
		"notice":   func(mood, title, text string) string { return b.add(Notice{Mood(mood), title, text}) },
		"add":      b.add,
		"words":    func(titles ...any) string { return b.columns(false, titles) },
		"numbers":  func(titles ...any) string { return b.columns(true, titles) },
		"row":      func(cells ...any) string { return b.row(&b.inTable().Rows, cells) },
		"foot":     func(cells ...any) string { return b.row(&b.inTable().Foot, cells) },
		"cell":     b.cells,
		"note":     b.note,
		"first":    b.first,
		"code":     func(v any) Cell { return Code(fmt.Sprint(v)) },
		"strong":   func(v any) Cell { return Cell{Text: fmt.Sprint(v), Strong: true} },
		"plain":    func(v any) Cell { c := cellOf(v); c.Text = fmt.Sprint(v); return c },
	}
}

// place is where components stand now.
func (b *builder) place() *[]Component {
	switch {
	case len(b.folded) > 0:
		return &b.folded[len(b.folded)-1].Components
	case len(b.doc.Sections) > 0:
		return &b.doc.Sections[len(b.doc.Sections)-1].Components
	}
	panic(fmt.Errorf("no section: %w", ErrView))
}

func (b *builder) inTable() *Table {
	if b.table == nil {
		panic(fmt.Errorf("no table: %w", ErrView))
	}
	return b.table
}

// add a component, or lengthen the list or the facts that stand before it.
func (b *builder) add(c Component) string {
	b.endTable()
	b.put(c)
	return ""
}

func (b *builder) put(c Component) {
	to := b.place()
	if n := len(*to); n > 0 {
		before, more := reflect.ValueOf((*to)[n-1]), reflect.ValueOf(c)
		if before.Type() == more.Type() && before.Kind() == reflect.Slice {
			c, *to = reflect.AppendSlice(before, more).Interface().(Component), (*to)[:n-1] //nolint:forcetypeassert // as both are
		}
	}
	*to = append(*to, c)
}

func (b *builder) text(v any, made func(text string) Component) string {
	if text := fmt.Sprint(v); text != "" {
		b.add(made(text))
	}
	return ""
}

// endTable puts the table where it stands, unless nothing is in it.
func (b *builder) endTable() {
	if b.table != nil && len(b.table.Rows) > 0 {
		b.put(*b.table)
	}
	b.table, b.last = nil, nil
}

func (b *builder) endFold() string {
	b.endTable()
	n := len(b.folded) - 1
	if n < 0 {
		panic(fmt.Errorf("no fold: %w", ErrView))
	}
	folded := b.folded[n]
	if b.folded = b.folded[:n]; len(folded.Components) > 0 {
		b.put(folded)
	}
	return ""
}

func (b *builder) columns(numeric bool, titles []any) string {
	table := b.inTable()
	for _, title := range titles {
		table.Columns = append(table.Columns, Column{fmt.Sprint(title), numeric})
	}
	return ""
}

func (b *builder) row(rows *[]Row, cells []any) string {
	*rows = append(*rows, nil)
	b.last = &(*rows)[len(*rows)-1]
	return b.cells(cells...)
}

func (b *builder) cells(cells ...any) string {
	if b.last == nil {
		panic(fmt.Errorf("no row: %w", ErrView))
	}
	for _, v := range cells {
		*b.last = append(*b.last, cellOf(v))
	}
	return ""
}

// cellOf a text, or a number of things.
func cellOf(v any) Cell {
	if cell, ok := v.(Cell); ok {
		return cell
	}
	r := reflect.ValueOf(v)
	switch {
	case r.CanInt():
		return Figure(float64(r.Int()), Count(float64(r.Int())))
	case r.CanUint():
		return Figure(float64(r.Uint()), Count(float64(r.Uint())))
	}
	return Text(fmt.Sprint(v))
}

func (b *builder) note(text string) string {
	b.inTable().Note = text
	return ""
}

// first of a list, of which the table has no more.
func (b *builder) first(most int, list any) any {
	all := reflect.ValueOf(list)
	if all.Len() <= most {
		return list
	}
	b.note(fmt.Sprintf("The first %d of %s.", most, Count(float64(all.Len()))))
	return all.Slice(0, most).Interface()
}
