// SPDX-License-Identifier: Apache-2.0

// Package strictyaml reads files that people write: one document, no unknown key,
// and mistakes that name the file and the line.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error lists the mistakes in a file. It is io.EOF for an empty file, which may be valid to the caller.
type Error struct {
	File     string
	Mistakes []Mistake
	cause    error
}

type Mistake struct {
	Line       int // 0 if unknown
	Text       string
	UnknownKey string // set if the key is unknown
}

func (e *Error) Error() string {
	texts := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		if texts[i] = m.Text; m.Line > 0 {
			texts[i] = fmt.Sprintf("line %d: %s", m.Line, m.Text)
		}
	}
	return e.File + ": " + strings.Join(texts, "; ")
}

func (e *Error) Unwrap() error { return e.cause }

// Decode reads the one document of a file. Its errors are *Error.
func Decode(file string, data []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		return &Error{File: file, Mistakes: mistakes(err), cause: err}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return &Error{File: file, Mistakes: []Mistake{{Text: "more than one document"}}}
	}
	return nil
}

var (
	atLine       = regexp.MustCompile(`^line ([0-9]+): ((?s).*)$`)
	unknownField = regexp.MustCompile(`^field (\S+) not found in type .*$`)
)

// mistakes translates the decoder's messages.
func mistakes(err error) []Mistake {
	if errors.Is(err, io.EOF) {
		return []Mistake{{Text: "empty file"}}
	}
	texts := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) {
		texts = wrong.Errors
	}
	list := make([]Mistake, len(texts))
	for i, text := range texts {
		m := &list[i]
		if parts := atLine.FindStringSubmatch(text); parts != nil {
			m.Line, _ = strconv.Atoi(parts[1]) // digits
			text = parts[2]
		}
		if parts := unknownField.FindStringSubmatch(text); parts != nil {
			m.UnknownKey = parts[1]
			text = fmt.Sprintf("unknown key %q", m.UnknownKey)
		}
		m.Text = text
	}
	return list
}

// LineOf is Line for a file that is not decoded yet.
func LineOf(data []byte, path ...any) int {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return 1
	}
	return Line(&document, path...)
}

// Line finds the line of the key or the list's element that a path of keys and
// indexes leads to, or of the nearest of its parents that is there.
func Line(document *yaml.Node, path ...any) int {
	node, line := document, 1
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
		line = node.Line
	}
	for _, step := range path {
		var next *yaml.Node
		switch step := step.(type) {
		case string:
			for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == step {
					line, next = node.Content[i].Line, node.Content[i+1]
				}
			}
		case int:
			if node.Kind == yaml.SequenceNode && step < len(node.Content) {
				next = node.Content[step]
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		node = next
	}
	return line
}
