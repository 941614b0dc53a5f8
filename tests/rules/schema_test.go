// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/tune"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
	"github.com/kernelbroker/kernelbroker/tests/bench/sidebyside"
)

// document is a kind of file in the catalog: its schema is for editors, and
// what the product goes by is its parser.
type document struct {
	folder, schema string
	parse          func(path string, text []byte) error
	// example has every key.
	example string
}

var documents = []document{
	{"profiles", "profile", func(path string, text []byte) error { _, err := catalog.ParseProfile(path, text); return err }, `
name: some
application: Some
description: Does something
default_version: 1
versions: [{version: 1, kernel: some, arguments: [quiet]}]
requires: {architecture: x86_64, memory_mib: 5}
reuse: never
fallback: hold
boot_attempts: 2
boot_timeout: 90s
`},
	{"kernels", "kernel", func(path string, text []byte) error { _, err := build.ParseRecipe(path, text); return err }, `
name: some
description: Some
source: {debian: linux-source-6.1}
base: tinyconfig
fragments: [base]
localversion: -some
compiler: gcc-12
optimisation: pgo
slimming: trace
workload: some
keep: [PCI]
patches: [{file: some.patch, upstream: never sent}]
exclude: [{object: fs/namei.o, reason: does not compile}]
`},
	{"workloads", "workload", func(path string, text []byte) error { _, err := workload.Parse(path, text); return err }, `
name: some
application: Some
description: Does something
operation: thing
programs: [some]
packages: [some]
files: [/usr/bin/some]
tools: [/usr/bin/other]
config: {/etc/some: text}
modules: [loop]
cpus: 2
memory: 128
disk: 64
limit: 5
setup: prepare
run: some
check: look
train: {seed: 1, size: 10}
test: {seed: 2, size: 20}
`},
	{"benches", "bench", func(path string, text []byte) error { _, err := sidebyside.ParsePlan(path, text); return err }, `
name: some
title: Some
slim: a
kernels: [a, b]
workloads: [w]
`},
	{".", "proposals", func(path string, text []byte) error { _, err := tune.Parse(path, text); return err }, `
proposals: [{fragment: some, title: Some, group: a, gives_up: limits}, {fragment: other, title: Other}]
`},
}

func (d document) compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(root, "catalog/schema", d.schema+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// fits says whether a document in YAML fits a schema.
func fits(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(instance)
}

func TestTheCatalogFitsItsSchemas(t *testing.T) {
	for _, d := range documents {
		schema := d.compile(t)
		paths, err := filepath.Glob(filepath.Join(root, "catalog", d.folder, "*.yaml"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", d.folder, len(paths), err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := fits(t, schema, text); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// A schema and its parser are two descriptions of one thing. So each change of
// a good document is taken by both or by neither.
func TestSchemasSayWhatParsersSay(t *testing.T) {
	for _, d := range documents {
		schema := d.compile(t)
		refused := 0
		for name, text := range variants(t, d.example) {
			parsed, fitted := d.parse("some.yaml", text), fits(t, schema, text)
			if (parsed == nil) != (fitted == nil) {
				t.Errorf("%s, %s: the parser says %v, the schema %v", d.folder, name, parsed, fitted)
			}
			if parsed != nil {
				refused++
			}
		}
		if refused < 10 {
			t.Errorf("%s: only %d variants are refused", d.folder, refused)
		}
	}
}

// variants of a document, by what was changed: nothing, a key that nobody knows,
// and for each key none, one of another type, an empty and a negative value; and
// so for the keys of a list's first element.
func variants(t *testing.T, example string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	put := func(name string, change func(map[string]any)) {
		var value map[string]any
		if err := yaml.Unmarshal([]byte(example), &value); err != nil {
			t.Fatal(err)
		}
		change(value)
		text, err := yaml.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = text
	}
	put("as it is", func(map[string]any) {})
	put("unknown key", func(v map[string]any) { v["unknown"] = 1 })
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(example), &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		set := func(what string, to any) {
			put(fmt.Sprintf("%s: %s", key, what), func(v map[string]any) { v[key] = to })
		}
		put(key+": none", func(v map[string]any) { delete(v, key) })
		set("another type", map[string]any{"unknown": []int{1}})
		switch value := keys[key].(type) {
		case string:
			set("empty", "")
			set("blank", " ")
			set("two lines", value+"\n"+value)
		case int:
			set("negative", -1)
			set("huge", 1<<40)
		case []any:
			set("twice", append(slices.Clone(value), value[0]))
			set("odd", []any{" / "})
			if first, is := value[0].(map[string]any); is {
				for _, inner := range slices.Sorted(maps.Keys(first)) {
					for what, to := range map[string]any{"another type": []any{map[string]any{"unknown": 1}}, "empty": "", "two lines": "some\nsome", "another": "-Some"} {
						changed := maps.Clone(first)
						changed[inner] = to
						set(inner+": "+what, append([]any{changed}, value[1:]...))
					}
				}
			}
		case map[string]any:
			set("empty", map[string]any{})
		}
	}
	return all
}
