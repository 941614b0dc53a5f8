// SPDX-License-Identifier: Apache-2.0

// Package report makes self-contained pages of what was measured: text, tables
// that sort, and charts, in one HTML file that needs no network, and the same
// text and tables for a terminal.
//
// The idea: a report is a Document of Sections of Components, and these are plain
// data. A View, a template, says which of them a report has and in which order;
// Go calculates the figures. No report has HTML of its own, so there is one
// place where names from outside are escaped, one that knows light, dark, paper
// and screen readers, and a terminal shows the very figures of the page, since
// both are drawn from the same values.
//
// A page says in its own content security policy that nothing may be loaded
// and that no script may run but the one in it, by digest. The script only
// sorts tables and zooms; without it everything is there to read. The two kinds
// of charts, rows with bars or dots and flame graphs, are drawn here as inline
// SVG, and not by a charts library: they take their colours from the page's
// theme, and each mark shows its figure to pointers and screen readers.
package report

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"regexp"
)

type Document struct {
	Title string
	// Lead says in a sentence or two what the page is about.
	Lead     string
	Sections []Section
	// Foot is the last line: by what and when the page was made.
	Foot string

	broken error // of the view that made it
}

type Section struct {
	// ID is the section's anchor: letters, digits and hyphens.
	ID         string
	Title      string
	Lead       string
	Components []Component
}

// Component is a piece of a section: one of this package's types.
type Component interface {
	// template that draws it.
	template() string
}

//go:embed assets/page.css
var style string

//go:embed assets/page.js
var script string

//go:embed templates
var templates embed.FS

// parsed is set by init, since parts have parts: the templates call a function
// that uses the templates.
var parsed *template.Template

func init() {
	parsed = template.Must(template.New("").Funcs(template.FuncMap{"part": drawPart, "placed": place}).ParseFS(templates, "templates/*.tmpl"))
}

func drawPart(p Component) (template.HTML, error) {
	var out bytes.Buffer
	if err := parsed.ExecuteTemplate(&out, p.template(), p); err != nil {
		return "", err
	}
	return template.HTML(out.String()), nil //nolint:gosec // made by html/template one line above
}

// ErrAnchor is a section whose ID cannot be linked to.
var ErrAnchor = errors.New("bad or repeated section ID")

func (d Document) WriteHTML(w io.Writer) error {
	if err := d.check(); err != nil {
		return fmt.Errorf("page %q: %w", d.Title, err)
	}
	data := struct {
		Document
		Policy string
		Style  template.CSS
		Script template.JS
	}{
		Document: d,
		Policy: fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; base-uri 'none'; form-action 'none'",
			hash(script), hash(style)),
		Style:  template.CSS(style), //nolint:gosec // G203: a file of this package
		Script: template.JS(script), //nolint:gosec // our own file
	}
	// Into memory first: a page that breaks off is worse than none.
	var out bytes.Buffer
	if err := parsed.ExecuteTemplate(&out, "document", data); err != nil {
		return fmt.Errorf("page %q: %w", d.Title, err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("page %q: %w", d.Title, err)
	}
	return nil
}

// hash as a content security policy names a script.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (d Document) check() error {
	if d.broken != nil {
		return d.broken
	}
	seen := map[string]bool{}
	for _, s := range d.Sections {
		if !anchor.MatchString(s.ID) || seen[s.ID] {
			return fmt.Errorf("section %q, ID %q: %w", s.Title, s.ID, ErrAnchor)
		}
		seen[s.ID] = true
	}
	return nil
}

var anchor = regexp.MustCompile(`^[a-z0-9-]+$`)

// Paragraph of plain text.
type Paragraph string

func (Paragraph) template() string { return "paragraph" }

// Mood of a notice. A word shows it as well as a colour.
type Mood string

// The moods.
const (
	Good    Mood = "good"
	Neutral Mood = "neutral"
	Bad     Mood = "bad"
)

// Notice is a boxed sentence that should not be overlooked.
type Notice struct {
	Mood  Mood
	Title string
	Text  string
}

func (Notice) template() string { return "notice" }

// Class of the box; an unknown mood is neutral.
func (n Notice) Class() string {
	switch n.Mood {
	case Good, Bad:
		return "notice " + string(n.Mood)
	case Neutral:
	}
	return "notice neutral"
}

// List of plain texts.
type List []string

func (List) template() string { return "list" }

// Facts are names with their values.
type Facts []Fact

// Fact is one of them. Code is set in a fixed width: digests, flags, paths.
type Fact struct {
	Name string
	Text string
	Code bool
}

func (Facts) template() string { return "facts" }

// Folded parts are shown when asked for, and always on paper.
type Folded struct {
	Title      string
	Components []Component
}

func (Folded) template() string { return "folded" }
