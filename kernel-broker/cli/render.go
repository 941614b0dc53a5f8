// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// Values of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

func checkOutput(format string) error {
	switch format {
	case outputTable, outputJSON, outputYAML:
		return nil
	}
	return usageError{fmt.Errorf("--output %q is not one of table, json, yaml", format)}
}

// show prints a message of the API as data, or as a table.
func (a *app) show(message proto.Message, table func(*page)) error {
	if a.output == outputTable {
		return a.page(table)
	}
	text, err := marshal(message)
	if err != nil {
		return err
	}
	return a.showJSON(text)
}

// showList prints messages under one name.
func showList[M proto.Message](a *app, name string, messages []M, table func(*page)) error {
	if a.output == outputTable {
		return a.page(table)
	}
	parts := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		text, err := marshal(m)
		if err != nil {
			return err
		}
		parts[i] = text
	}
	return a.showValue(map[string][]json.RawMessage{name: parts}, table)
}

// showJSON normalises JSON, whose white space protobuf varies on purpose, or converts it to YAML.
func (a *app) showJSON(text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, escaped(text), "", "  "); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	out.WriteByte('\n')
	if a.output == outputYAML {
		// JSON is YAML in another style; the order of keys stays.
		var document yaml.Node
		if err := yaml.Unmarshal(out.Bytes(), &document); err != nil {
			return fmt.Errorf("result: %w", err)
		}
		unstyle(&document)
		out.Reset()
		encoder := yaml.NewEncoder(&out)
		encoder.SetIndent(2)
		if err := encoder.Encode(&document); err != nil {
			return fmt.Errorf("result: %w", err)
		}
	}
	_, err := a.Stdout.Write(out.Bytes())
	return err
}

// escaped escapes control characters for terminals, and characters that YAML rejects or reads as line ends, which occur
// in strings only.
func escaped(text []byte) []byte {
	var out bytes.Buffer
	for _, c := range string(text) {
		switch {
		case c >= 0x7f && c < 0xa0, c == 0x2028, c == 0x2029, c == 0xfeff, c == 0xfffe, c == 0xffff:
			fmt.Fprintf(&out, "\\u%04x", c)
		default:
			out.WriteRune(c)
		}
	}
	return out.Bytes()
}

// unstyle drops the braces and the quotes that are not needed.
func unstyle(node *yaml.Node) {
	// The library still quotes a string that looks like a number; it writes lines that begin with a tab as a block that
	// it cannot read.
	if node.Style = 0; strings.Contains(node.Value, "\t") {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		unstyle(child)
	}
}

// orNone prints a note in place of a table without rows.
func (a *app) orNone(rows int, note string, table func(*page)) func(*page) {
	if rows > 0 {
		return table
	}
	a.say("%s", note)
	return func(*page) {}
}

// page collects text for terminals and is written at once.
type page struct {
	text bytes.Buffer
	tab  *tabwriter.Writer
}

func (a *app) page(fill func(*page)) error {
	p := &page{}
	fill(p)
	p.flush()
	_, err := a.Stdout.Write(p.text.Bytes())
	return err
}

// row adds a line of a table. Rows that follow each other are aligned.
func (p *page) row(cells ...any) {
	if p.tab == nil {
		p.tab = tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
	}
	texts := make([]string, len(cells))
	for i, cell := range cells {
		text := strings.Join(strings.Fields(plain(fmt.Sprint(cell))), " ")
		text = cmp.Or(text, "-")
		texts[i] = text
	}
	p.write(p.tab, strings.Join(texts, "\t")+"\n")
}

// line adds text outside a table.
func (p *page) line(format string, args ...any) {
	p.flush()
	p.write(&p.text, plain(fmt.Sprintf(format, args...))+"\n")
}

// flush ends a table.
func (p *page) flush() {
	if p.tab != nil {
		if err := p.tab.Flush(); err != nil {
			panic(err) // writing to memory does not fail
		}
		p.tab = nil
	}
}

func (*page) write(w io.Writer, text string) {
	if _, err := io.WriteString(w, text); err != nil {
		panic(err) // writing to memory does not fail
	}
}

// say prints a message that is not the result.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintln(a.Stderr, plain(fmt.Sprintf(format, args...)))
}
