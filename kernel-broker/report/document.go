// SPDX-License-Identifier: Apache-2.0

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

// Document is one page.
type Document struct {
	Title string
	// Lead says in a sentence or two what the page is about.
	Lead     string
	Sections []Section
	// Foot is the last line: by what and when the page was made.
	Foot string

	broken error // of the view that made it
}

// Section of a page.
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

// WriteHTML writes the page.
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
