// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// yamlFile is a document with line numbers for error messages.
type yamlFile struct {
	name     string
	document yaml.Node
}

func parseYAML(name string, text []byte, into any) (*yamlFile, error) {
	y := &yamlFile{name: name}
	err := strictyaml.Decode(name, text, &y.document)
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: is empty: %w", name, kb.ErrInvalid)
	}
	if err == nil {
		err = strictyaml.Decode(name, text, into)
	}
	var wrong *strictyaml.Error
	if errors.As(err, &wrong) {
		return nil, explain(wrong, keysOf(reflect.TypeOf(into)))
	}
	return y, err
}

// explain reports each mistake with file and line, and suggests the intended key.
func explain(wrong *strictyaml.Error, keys []string) error {
	var all []error
	for _, m := range wrong.Mistakes {
		where := wrong.File
		if m.Line > 0 {
			where = fmt.Sprintf("%s:%d", where, m.Line)
		}
		if m.UnknownKey != "" {
			if near := nearMisses(m.UnknownKey, keys); len(near) > 0 {
				m.Text += fmt.Sprintf("; did you mean %q?", near[0])
			}
		}
		all = append(all, fmt.Errorf("%s: %s: %w", where, m.Text, kb.ErrInvalid))
	}
	return errors.Join(all...)
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
// line and key.
func (y *yamlFile) at(err error, path ...any) error {
	var key strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&key, "[%d]", step)
		case string:
			if key.Len() > 0 {
				key.WriteByte('.')
			}
			key.WriteString(step)
		}
	}
	return fmt.Errorf("%s:%d: %s: %w", y.name, strictyaml.Line(&y.document, path...), key.String(), err)
}
