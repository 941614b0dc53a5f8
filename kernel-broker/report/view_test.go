// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"text/template"
)

// A view makes the document that Go would, and what has nothing in it is left out.
func TestView(t *testing.T) {
	const text = `{{page .Title "It shows every part." "Made by a test."}}
		{{section "words" "Words" "Lead."}}
		{{p "A paragraph."}}{{p ""}}{{item "one"}}{{item ""}}{{item "two"}}
		{{fact "Release" "6.1"}}{{fact "Nothing" ""}}{{codefact "Digest" "sha256:00"}}
		{{notice "good" "Good." "All is well."}}
		{{fold "More"}}{{table "Inside"}}{{words "A"}}{{row "x"}}{{endfold}}{{fold "Empty"}}{{table "No rows"}}{{words "A"}}{{endfold}}
		{{section "empty" "Empty" "Only a lead."}}
		{{section "table" "Table" ""}}
		{{table "Figures"}}{{words "Name"}}{{numbers "Value" "Other"}}
		{{range first 2 .Rows}}{{row (code .)}}{{cell 1500 (mark)}}{{end}}{{foot (strong "sum") (plain 1500) ""}}`
	view := NewView(text, template.FuncMap{"mark": Missing})
	got := view.Document(map[string]any{"Title": "A page", "Rows": []string{"a", "b", "c"}})
	row := func(name string) Row { return Row{Code(name), Figure(1500, "1,500"), Missing()} }
	want := Document{Title: "A page", Lead: "It shows every part.", Foot: "Made by a test.", Sections: []Section{
		{ID: "words", Title: "Words", Lead: "Lead.", Components: []Component{
			Paragraph("A paragraph."), List{"one", "two"}, Facts{{"Release", "6.1", false}, {"Digest", "sha256:00", true}}, Notice{Good, "Good.", "All is well."},
			Folded{"More", []Component{Table{Caption: "Inside", Columns: []Column{{"A", false}}, Rows: []Row{{Text("x")}}}}},
		}},
		{ID: "table", Title: "Table", Components: []Component{Table{Caption: "Figures", Note: "The first 2 of 3.",
			Columns: []Column{{"Name", false}, {"Value", true}, {"Other", true}}, Rows: []Row{row("a"), row("b")},
			Foot: []Row{{{Text: "sum", Strong: true}, Figure(1500, "1500"), Text("")}}}}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// A view that goes wrong is no half a document.
func TestBrokenView(t *testing.T) {
	const section = `{{section "a" "A" ""}}{{p "text"}}`
	for _, text := range []string{`{{row 1}}`, `{{cell 1}}`, `{{words "a"}}`, `{{note "a"}}`, `{{endfold}}`, `{{table "t"}}{{cell 1}}`, `{{fold "a"}}{{p "in it"}}`} {
		err := NewView(section+text, nil).Document(nil).WriteHTML(io.Discard)
		if !errors.Is(err, ErrView) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`{{p "first"}}`, `{{table "first"}}`} {
		if err := NewView(text, nil).Document(nil).WriteText(io.Discard); !errors.Is(err, ErrView) {
			t.Errorf("%s: %v", text, err)
		}
	}
	fail := template.FuncMap{"fail": func() (string, error) { return "", fmt.Errorf("no figure") }}
	if err := NewView(section+`{{fail}}`, fail).Document(nil).WriteHTML(io.Discard); err == nil || !strings.Contains(err.Error(), "no figure") {
		t.Errorf("an error of a function: %v", err)
	}
}
