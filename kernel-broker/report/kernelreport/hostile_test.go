// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

const hostile = `<script>alert(1)</script>"><img src=x onerror=alert(2)>'` + "`${x}`{{.}}</style></title></svg> javascript:alert(3) \x1b[31m\u202e&amp;"

// poison every text of the facts that has no form to keep.
func poison(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			poison(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), path)
		}
	case reflect.String:
		// Digests, times, and enumerations are checked by form, and what a
		// metric is called decides what is shown.
		for _, formed := range []string{"Digest", "InputsKey", "Made", "Decision", "Metric"} {
			if strings.HasSuffix(path, formed) {
				return
			}
		}
		if v.String() != "" {
			v.SetString(v.String() + hostile)
		}
	}
}

func TestHostileNames(t *testing.T) {
	for _, f := range []Facts{fixture(), bench()} {
		poison(reflect.ValueOf(&f), "")
		r := mustMake(t, f)
		var out bytes.Buffer
		if err := r.WriteHTML(&out); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "alert(1)"); n < 100 {
			t.Fatalf("the names are %d times on the page: this test looks at nothing", n)
		}
		inspect(t, out.String())
		var text bytes.Buffer
		if err := r.Document().WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(text.String(), "\x1b\u202e") {
			t.Error("a name moves the terminal's cursor or turns its text")
		}
	}
}

// inspect finds every element and attribute that a browser would see.
func inspect(t *testing.T, text string) {
	t.Helper()
	scripts := 0
	tokens := html.NewTokenizer(strings.NewReader(text))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			if !errors.Is(tokens.Err(), io.EOF) {
				t.Error(tokens.Err())
			}
			if scripts != 1 {
				t.Errorf("%d scripts", scripts)
			}
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			token := tokens.Token()
			switch token.Data {
			case "script":
				scripts++
			case "img", "iframe", "object", "embed", "link", "base", "form":
				t.Errorf("an element %q", token.Data)
			}
			for _, a := range token.Attr {
				loads := a.Key == "src" || a.Key == "style" || strings.HasPrefix(a.Key, "on") ||
					(a.Key == "href" && !strings.HasPrefix(a.Val, "#"))
				if loads {
					t.Errorf("<%s> has %s=%q", token.Data, a.Key, a.Val)
				}
			}
		default:
		}
	}
}

func TestPageLoadsNothing(t *testing.T) {
	var out bytes.Buffer
	if err := mustMake(t, fixture()).WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	inspect(t, out.String())
	for _, text := range []string{"http://", "https://", "url(", "@import"} {
		if strings.Contains(out.String(), text) {
			t.Errorf("the page has %q", text)
		}
	}
}
