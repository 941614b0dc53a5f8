// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Values of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputWide  = "wide"
)

var outputs = []string{outputTable, outputJSON, outputYAML, outputWide}

// isTable reports whether the result is for people.
func (a *app) isTable() bool { return a.output == outputTable || a.output == outputWide }

func checkOutput(format string) error {
	if !slices.Contains(outputs, format) {
		return usageError{fmt.Errorf("--output %q is not one of %s", format, strings.Join(outputs, ", "))}
	}
	return nil
}

// show prints a message of the API as data, or as a table.
func (a *app) show(message proto.Message, table func(*page)) error {
	if a.isTable() {
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
	if a.isTable() {
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
	text  bytes.Buffer
	width int // 0 is no limit
	rows  *rows
}

func (a *app) page(fill func(*page)) error {
	p := &page{width: a.pageWidth()}
	fill(p)
	p.flush()
	_, err := a.Stdout.Write(p.text.Bytes())
	return err
}

// pageWidth is how many columns a page may take; 0 is no limit.
func (a *app) pageWidth() int {
	if a.output == outputWide {
		return 0
	}
	return cmp.Or(a.Width, columnWidth)
}

// line adds text outside a table, for machines too: it is not wrapped.
func (p *page) line(format string, args ...any) {
	p.flush()
	p.text.WriteString(plain(fmt.Sprintf(format, args...)) + "\n")
}

// say prints a message that is not the result.
func (a *app) say(format string, args ...any) {
	text := plain(fmt.Sprintf(format, args...))
	a.said = append(a.said, text)
	_, _ = fmt.Fprintln(a.Stderr, text)
}

// shortID is the displayed length of a build id.
const shortID = 12

func short(id string) string { return id[:min(len(id), shortID)] }

// shortDigest is enough of a digest to tell it from others; --output wide and json have the whole.
func (p *page) shortDigest(digest string) string {
	kind, sum, found := strings.Cut(digest, ":")
	if !found || p.width == 0 {
		return digest
	}
	return kind + ":" + short(sum)
}

func refOf(v *api.ProfileVersion) string {
	return kernelRef(v.GetKernel().GetProfile(), v.GetKernel().GetVersion())
}

// kernelRef is empty for no kernel.
func kernelRef(profile string, version uint32) string {
	return kb.Ref{Profile: profile, Version: version}.String()
}

func either[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}

// requestID returns a random id of one change, so that the broker applies it once.
func requestID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}

// marshal writes a message as JSON like protobuf, but with plain numbers. protobuf writes 64-bit integers as strings, for
// JavaScript; other readers of JSON prefer numbers.
func marshal(message proto.Message) (json.RawMessage, error) {
	var out bytes.Buffer
	if err := writeMessage(&out, message.ProtoReflect()); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return out.Bytes(), nil
}

// writeMessage writes the fields in the order of the API's descriptors, also those with their default.
func writeMessage(out *bytes.Buffer, m protoreflect.Message) error {
	if strings.HasPrefix(string(m.Descriptor().FullName()), "google.protobuf.") {
		text, err := protojson.Marshal(m.Interface()) // a timestamp, for example, has its own form
		out.Write(text)
		return err
	}
	separator := byte('{')
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.HasPresence() && !m.Has(field) {
			continue
		}
		out.WriteByte(separator)
		fmt.Fprintf(out, "%q:", field.Name())
		if err := writeField(out, field, m.Get(field)); err != nil {
			return err
		}
		separator = ','
	}
	if separator == '{' {
		out.WriteByte('{')
	}
	out.WriteByte('}')
	return nil
}

func writeField(out *bytes.Buffer, field protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case field.IsList():
		out.WriteByte('[')
		for i := range v.List().Len() {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeValue(out, field, v.List().Get(i)); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	case field.IsMap():
		entries := map[string]protoreflect.Value{}
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			entries[key.String()] = value
			return true
		})
		out.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(entries)) {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := encode(out, key); err != nil {
				return err
			}
			out.WriteByte(':')
			if err := writeValue(out, field.MapValue(), entries[key]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
		return nil
	}
	return writeValue(out, field, v)
}

func writeValue(out *bytes.Buffer, field protoreflect.FieldDescriptor, v protoreflect.Value) error {
	if field.Message() != nil {
		return writeMessage(out, v.Message())
	}
	if field.Enum() != nil {
		return encode(out, convert.WordOf(field.Enum(), v.Enum()))
	}
	if field.Kind() == protoreflect.BytesKind {
		return encode(out, append([]byte{}, v.Bytes()...)) // never null
	}
	return encode(out, v.Interface())
}

// encode writes a value without the escapes that only HTML needs.
func encode(out *bytes.Buffer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	out.Truncate(len(bytes.TrimRight(out.Bytes(), "\n")))
	return err
}
