// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html"
	"regexp"
	"strings"
	"testing"
)

func ref(v float64) *float64 { return &v }

// sample has every part.
func sample() Document {
	return Document{
		Title: "A page", Lead: "It shows every part.", Foot: "Made by a test.",
		Sections: []Section{
			{ID: "words", Title: "Words", Lead: "Lead.", Components: []Component{
				Paragraph("A paragraph."), Notice{Good, "Good.", "All is well."}, Notice{Bad, "Bad.", "It is not."}, Notice{"", "So.", "Hm."},
				List{"one", "two"}, Facts{{"Release", "6.1", false}, {"Digest", "sha256:00", true}},
				Folded{"More", []Component{Paragraph("Folded.")}},
			}},
			{ID: "table", Title: "Table", Components: []Component{Table{
				Caption: "Figures", Note: "A note.",
				Columns: []Column{{"Name", false}, {"Value", true}},
				Rows:    []Row{{Text("b"), Figure(10, "10")}, {Code("a"), Missing()}, {Text("c"), {Text: "-5", Value: ref(-5), Shade: -9, Strong: true}}},
				Foot:    []Row{{Text("mean"), Figure(2.5, "2.5")}},
			}}},
			{ID: "charts", Title: "Charts", Components: []Component{
				Chart{Caption: "Dots", Axis: "per cent", Series: Named("x", "y"), Reference: ref(100), Rows: []ChartRow{
					{Label: "first", Dots: []*Dot{{Value: 90, Spread: 4, Title: "x on first"}, nil}},
					{Label: "second", Dots: []*Dot{{Value: 105, Title: "x on second"}, {Value: 120, Title: "y on second"}}},
				}},
				Chart{Caption: "Bars", Axis: "MiB", Series: Named("hot", "cold"), Rows: []ChartRow{{Label: "one", Sizes: []float64{3, 1}}, {Label: "two", Sizes: []float64{2, 0}}}},
			}},
		},
	}
}

func render(t *testing.T, d Document) string {
	t.Helper()
	var out bytes.Buffer
	if err := d.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPage(t *testing.T) {
	text := render(t, sample())
	for _, want := range []string{
		"<title>A page</title>", `<section id="words"`, `<p>A paragraph.</p>`, `class="notice good"`, `class="notice bad"`, `class="notice neutral"`,
		"<li>two</li>", "<dt>Release</dt><dd>6.1</dd>", "<code>sha256:00</code>", "<summary>More</summary>", "<p>Folded.</p>",
		"<caption>Figures</caption>", `<th scope="col" class="number">Value</th>`, `<th scope="row"><code>a</code></th>`,
		`data-value="10"`, `class="number less3 strong" data-value="-5"`, "<tfoot>", "A note.",
		`<title>x on first</title>`, `class="reference"`, `aria-label="Dots"`, "<title>one, cold: 1</title>", "Made by a test.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if strings.Contains(text, "two, cold") {
		t.Error("an empty segment is drawn")
	}
}

// The policy has to name the very script and style that are on the page, or
// the browser runs neither.
func TestPolicyNamesScriptAndStyle(t *testing.T) {
	text := render(t, sample())
	policy := html.UnescapeString(regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)[1])
	for _, element := range []string{"script", "style"} {
		inside := regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(text, -1)
		if len(inside) != 1 {
			t.Fatalf("%d elements %s", len(inside), element)
		}
		sum := sha256.Sum256([]byte(inside[0][1]))
		want := element + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		if !strings.Contains(policy, want) {
			t.Errorf("policy %q does not have %s", policy, want)
		}
	}
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
}

func TestDocumentRefuses(t *testing.T) {
	for name, change := range map[string]func(*Document){
		"no anchor":     func(d *Document) { d.Sections[0].ID = "" },
		"a strange one": func(d *Document) { d.Sections[0].ID = `x" onclick="` },
		"one twice":     func(d *Document) { d.Sections[0].ID = "table" },
		"a ragged table": func(d *Document) {
			d.Sections[1].Components[0] = Table{Columns: make([]Column, 2), Rows: []Row{{Text("x")}}}
		},
		"a ragged foot": func(d *Document) {
			d.Sections[1].Components[0] = Table{Columns: make([]Column, 2), Foot: []Row{{Text("x")}}}
		},
	} {
		d := sample()
		change(&d)
		var out bytes.Buffer
		if err := d.WriteHTML(&out); err == nil || out.Len() > 0 {
			t.Errorf("%s: error %v, %d bytes written", name, err, out.Len())
		}
		if err := d.WriteText(&out); err == nil || out.Len() > 0 {
			t.Errorf("%s as text: error %v, %d bytes written", name, err, out.Len())
		}
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteErrors(t *testing.T) {
	if err := sample().WriteHTML(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("HTML: %v", err)
	}
	if err := sample().WriteText(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("text: %v", err)
	}
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	want := `A page
======
It shows every part.

Words
-----
Lead.
A paragraph.
Good. All is well.
Bad. It is not.
So. Hm.
- one
- two
Release  6.1
Digest   sha256:00
+ More (on the page)

Table
-----

Figures
NAME  VALUE
b        10
a         –
c        -5

mean    2.5
A note.

Charts
------

Made by a test.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTextBreaksLines(t *testing.T) {
	var out bytes.Buffer
	d := Document{Title: "x", Lead: strings.Repeat("word ", 100) + strings.Repeat("long", 60)}
	if err := d.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if len(line) > lineWidth && !strings.Contains(line, "longlong") {
			t.Errorf("%d wide: %s", len(line), line)
		}
	}
	if got := strings.Count(out.String(), "word"); got != 100 {
		t.Errorf("%d words of 100", got)
	}
}

// A table of sentences is no table on a terminal: each row stands by itself.
func TestTextOfSentences(t *testing.T) {
	var out bytes.Buffer
	why, how := strings.Repeat("because ", 15)+"so", strings.Repeat("by ", 30)+"hand"
	d := Document{Title: "x", Sections: []Section{{ID: "s", Title: "s", Components: []Component{Table{Caption: "Steps",
		Columns: []Column{{Title: "Step"}, {Title: "Saves", Numeric: true}, {Title: "Why"}, {Title: "How"}},
		Rows:    []Row{{Text("One"), Figure(0.6, "60 %"), Text(why), Text(how)}, {Text("Two"), Missing(), Text("it is"), Text(how)}}}}}}}
	if err := d.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	const want = `
Steps
- One
  Saves  60 %
  Why    because because because because because because because because because
         because because because because because because so
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("got\n%s\nwant in it\n%s", out.String(), want)
	}
}
