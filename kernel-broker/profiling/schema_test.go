// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the schema anew")

// The schema is made of the types and of what their comments say, so that it
// cannot say anything else.
func TestSchemaIsOfTheTypes(t *testing.T) {
	s := schema{comments: comments(t), defs: map[string]any{}}
	root := s.of(reflect.TypeFor[Result]())
	// A line of figures on line holds a result too.
	s.of(reflect.TypeFor[Live]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "What a profiling run found; package kernel-broker/profiling"
	root["$defs"] = s.defs
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	const path = "schema/run.schema.json"
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(path)
	if err != nil || string(committed) != string(text) {
		t.Errorf("%s is not what the types say (%v): go test ./kernel-broker/profiling -run Schema -update", path, err)
	}
}

type schema struct {
	comments map[string]string
	defs     map[string]any
}

func (s schema) of(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t.Kind() == reflect.Struct:
		return s.reference(t)
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": s.of(t.Elem())}
	case t.Kind() == reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case t.Kind() == reflect.String:
		return map[string]any{"type": "string"}
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return map[string]any{"type": "integer"}
	}
	panic("no schema for " + t.String())
}

func (s schema) reference(t reflect.Type) map[string]any {
	if _, known := s.defs[t.Name()]; !known {
		s.defs[t.Name()] = nil // its own members may have it too
		s.defs[t.Name()] = s.object(t)
	}
	return map[string]any{"$ref": "#/$defs/" + t.Name()}
}

func (s schema) object(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, field := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue // embedded: its fields follow
		}
		property := s.of(field.Type)
		if said := s.comments[owner(t, field)+"."+field.Name]; said != "" {
			property["description"] = said
		}
		properties[name] = property
		if options != "omitempty" && options != "omitzero" {
			required = append(required, name)
		}
	}
	object := map[string]any{"type": "object", "properties": properties, "required": required}
	if said := s.comments[t.Name()]; said != "" {
		object["description"] = said
	}
	return object
}

// owner is the type that a field was written in.
func owner(t reflect.Type, field reflect.StructField) string {
	for _, index := range field.Index[:len(field.Index)-1] {
		t = t.Field(index).Type
	}
	return t.Name()
}

// comments of types and of their fields.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				named := spec.(*ast.TypeSpec)
				all[named.Name.Name] = oneLine(types.Doc)
				if structure, ok := named.Type.(*ast.StructType); ok {
					for _, field := range structure.Fields.List {
						for _, ident := range field.Names {
							all[named.Name.Name+"."+ident.Name] = oneLine(field.Doc)
						}
					}
				}
			}
		}
	}
	return all
}

func oneLine(comment *ast.CommentGroup) string {
	return strings.Join(strings.Fields(comment.Text()), " ")
}

// The domain of results is read by programs that have nothing else of ours but
// what adds up, which has the standard library alone.
func TestOnlyTheStandardLibrary(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "../internal/addup/addup.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			if strings.Contains(spec.Path.Value, ".") && !strings.HasSuffix(spec.Path.Value, `/internal/addup"`) {
				t.Errorf("%s imports %s", name, spec.Path.Value)
			}
		}
	}
}
