// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

//go:embed templates
var templates embed.FS

// parsed is set by init, since the layout calls a function that uses the templates.
var parsed *template.Template

func init() {
	parsed = template.Must(template.New("").Funcs(template.FuncMap{
		"body": renderPart, "nav": func() []link { return navigation }, "clock": clock, "ref": kernelRef, "took": took, "bytes": rounded.Size,
		"plural": plural, "count": grouped, "percent": func(f float64) string { return fmt.Sprintf("%.3f%%", f) },
	}).ParseFS(templates, "templates/*.tmpl"))
}

// page is one answer: a template with its data.
type page struct {
	Title string
	// Here is the navigation's entry that the page belongs to.
	Here     string
	Template string
	Data     any
	// Live is the address of the stream that keeps the page up to date; empty for none.
	Live string
	Code int
}

type link struct{ Path, Name string }

var navigation = []link{{"/", "Now"}, {"/jobs", "Jobs"}, {"/kernels", "Kernels"}, {"/runs", "Runs"}, {"/builds", "Builds"}, {"/hardware", "Hardware"}, {"/health", "Health"}}

// renderPart makes the HTML of one template.
func renderPart(name string, data any) (template.HTML, error) {
	var out bytes.Buffer
	if err := parsed.ExecuteTemplate(&out, name, data); err != nil {
		return "", err
	}
	return template.HTML(out.String()), nil //nolint:gosec // G203: made by html/template one line above
}

// serve answers with a view's page, or with one that explains the error.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, view func(*http.Request) (page, error)) {
	p, err := view(r)
	if err != nil {
		p = s.failure(err)
	}
	made := struct {
		page
		Address, Version, Drawn string
	}{p, s.o.Source.Address, s.o.Version, clock(s.o.Now())}
	text, err := renderPart("page", made)
	if err != nil {
		s.o.Log.Error("page not drawn", "path", r.URL.Path, "error", err)
		http.Error(w, "This page cannot be drawn. The terminal of kernelctl web says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Code != 0 {
		w.WriteHeader(p.Code)
	}
	_, _ = w.Write([]byte(text)) // the reader has gone
}

func (s *Server) failure(err error) page {
	code, title, text := s.explain(err)
	return page{Title: title, Template: "failure", Data: text, Code: code}
}

func (s *Server) missing(*http.Request) (page, error) { return page{}, errNoPage }

// clock prints a time with its zone; empty for none.
func clock(t any) string {
	at, is := t.(time.Time)
	if stamp, proto := t.(*timestamppb.Timestamp); proto && stamp != nil {
		at, is = stamp.AsTime(), true
	}
	if !is || at.IsZero() || at.Unix() == 0 {
		return ""
	}
	return at.Local().Format("2006-01-02 15:04:05 MST")
}

// took rounds a duration; a negative one is not known.
func took(d time.Duration) string {
	if d < 0 {
		return ""
	}
	return rounded.Time(d)
}

func kernelRef(profile string, version uint32) string {
	return kb.Ref{Profile: profile, Version: version}.String()
}

// plural counts things.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + one + "s"
}

// grouped writes a number in groups of three.
func grouped(n int) string { return humanize.Comma(int64(n)) }
