// Package strictyaml reads files that people write: one document, no unknown key,
// and mistakes that name the file and the line.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

var unknownField = regexp.MustCompile(`^(line \d+): field (\S+) not found in type .*$`)

// Decode reads the one document of a file.
func Decode(file string, data []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %s", file, message(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: more than one document", file)
	}
	return nil
}

// message turns the decoder's words into "line 3: unknown key "x"".
func message(err error) string {
	if errors.Is(err, io.EOF) {
		return "empty file"
	}
	var mistakes *yaml.TypeError
	if !errors.As(err, &mistakes) {
		return err.Error()
	}
	lines := make([]string, len(mistakes.Errors))
	for i, mistake := range mistakes.Errors {
		lines[i] = unknownField.ReplaceAllString(mistake, `$1: unknown key "$2"`)
	}
	return strings.Join(lines, "; ")
}

// KeyLine finds the line of a key on the top level; 1 if it is not there.
func KeyLine(data []byte, key string) int {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil || len(document.Content) == 0 {
		return 1
	}
	pairs := document.Content[0].Content
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i].Value == key {
			return pairs[i].Line
		}
	}
	return 1
}
