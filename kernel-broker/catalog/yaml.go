package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// yamlFile is one strict YAML document that remembers its lines, so that an
// error about a value can say where it stands.
type yamlFile struct {
	name string
	text []byte
	root *yaml.Node
}

func parseYAML(name string, text []byte) (*yamlFile, error) {
	y := &yamlFile{name: name, text: text, root: &yaml.Node{}}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(y.root)
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: is empty: %w", name, kernelbroker.ErrInvalid)
	}
	if err != nil {
		return nil, y.explain(err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: holds more than one document: %w", name, kernelbroker.ErrInvalid)
	}
	return y, nil
}

// decode fills a struct; a key that it does not have is an error.
func (y *yamlFile) decode(into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(y.text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		return y.explain(err, keysOf(reflect.TypeOf(into))...)
	}
	return nil
}

var (
	yamlLine   = regexp.MustCompile(`^(?:yaml: )?line ([0-9]+): (.*)$`)
	unknownKey = regexp.MustCompile(`^field (\S+) not found in type \S+$`)
)

// explain says with file and line what the library found.
func (y *yamlFile) explain(err error, keys ...string) error {
	found := []string{err.Error()}
	var types *yaml.TypeError
	if errors.As(err, &types) {
		found = types.Errors
	}
	wrong := make([]error, len(found))
	for i, text := range found {
		where := y.name
		if parts := yamlLine.FindStringSubmatch(text); parts != nil {
			where, text = y.name+":"+parts[1], parts[2]
		}
		if parts := unknownKey.FindStringSubmatch(text); parts != nil {
			text = fmt.Sprintf("unknown key %q", parts[1])
			if near := nearMisses(parts[1], keys); len(near) > 0 {
				text += fmt.Sprintf("; did you mean %q?", near[0])
			}
		}
		wrong[i] = fmt.Errorf("%s: %s: %w", where, strings.TrimPrefix(text, "yaml: "), kernelbroker.ErrInvalid)
	}
	return errors.Join(wrong...)
}

// keysOf lists the YAML keys of a struct and of those in it.
func keysOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for i := range t.NumField() {
		keys = append(keys, t.Field(i).Tag.Get("yaml"))
		keys = append(keys, keysOf(t.Field(i).Type)...)
	}
	return keys
}

// at wraps an error about the value at a path of keys and indexes with file,
// line and key. For a key that is not there it is the line of its parent.
func (y *yamlFile) at(err error, path ...any) error {
	node := y.root
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := node.Line
	var key strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&key, "[%d]", step)
			if node != nil && node.Kind == yaml.SequenceNode && step < len(node.Content) {
				node = node.Content[step]
				line = node.Line
			} else {
				node = nil
			}
		case string:
			if key.Len() > 0 {
				key.WriteByte('.')
			}
			key.WriteString(step)
			if node = valueOf(node, step); node != nil {
				line = node.Line
			}
		}
	}
	return fmt.Errorf("%s:%d: %s: %w", y.name, line, key.String(), err)
}

func valueOf(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}
