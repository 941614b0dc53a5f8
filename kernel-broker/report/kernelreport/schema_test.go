// SPDX-License-Identifier: Apache-2.0

package kernelreport

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Every key that a report can have stands in its documentation.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	collect(reflect.TypeFor[Report](), keys)
	if len(keys) < 80 {
		t.Fatalf("only %d keys found", len(keys))
	}
	for key := range keys {
		if !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("key %q is not in README.md", key)
		}
	}
}

func collect(t reflect.Type, keys map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		collect(t.Elem(), keys)
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); key != "" {
				keys[key] = true
			} else if field.IsExported() && !field.Anonymous {
				keys["(no key) "+t.Name()+"."+field.Name] = true
			}
			if field.IsExported() {
				collect(field.Type, keys)
			}
		}
	}
}
