// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

var update = flag.Bool("update", false, "write testdata anew")

// Sites keep results for months. A change here throws away every result of the
// steps whose keys differ, so that it has to be meant: write the file anew with
// -update, and say in the commit what will be done again.
func TestKeysStay(t *testing.T) {
	w := newWorld(t, nil)
	if _, _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	status, err := StoreIn(w.dir).Status("fake", "")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, step := range status.Steps {
		if step.State != graph.Done || step.Key == "" {
			t.Errorf("step %q: %s, key %q", step.Name, step.State, step.Key)
		}
		// Publication is an effect: it is done each time.
		if step.Name != StepPublish {
			lines = append(lines, step.Name+" "+step.Key+"\n")
		}
	}
	slices.Sort(lines)
	checkGolden(t, "keys.txt", strings.Join(lines, ""))
}

// The keys of the catalog's own recipes, with a compiler, a source and a bench
// that are always the same: what a site has built of them stays built. A recipe
// or a fragment that changes changes its line and no other.
func TestCatalogKeysStay(t *testing.T) {
	const catalog = "../../../catalog"
	tools := t.TempDir()
	for _, tool := range []string{"gcc-12", "clang-19", "ld", "ld.lld-19", "pahole", "apt-cache", "xz"} {
		script := "#!/bin/sh\necho " + tool + " 1.0\n"
		switch tool {
		case "apt-cache":
			script = "#!/bin/sh\necho Version: 1.0\n" // of packages with modules
		case "xz":
			script = "#!/bin/sh\necho CONFIG_NET=y\n" // the distribution's configuration
		}
		if err := os.WriteFile(filepath.Join(tools, tool), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", tools)
	find := func(_ context.Context, name string) (build.SourcePackage, error) {
		return build.SourcePackage{Name: name, Version: "6.1.1-1", Config: "config.xz"}, nil
	}
	builder := &build.Builder{Catalog: catalog, Cache: build.Cache{Dir: t.TempDir()}, Jobs: 2, FindSource: find}
	recipes, err := filepath.Glob(filepath.Join(catalog, "kernels", "*.yaml"))
	if err != nil || len(recipes) == 0 {
		t.Fatalf("%d recipes, %v", len(recipes), err)
	}
	var got strings.Builder
	for _, recipe := range recipes {
		name := strings.TrimSuffix(filepath.Base(recipe), ".yaml")
		plan, err := builder.Plan(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		f := newFake()
		p := Pipeline{Recipe: plan.Recipe, Kernels: fixedStock{Factory{Builder: builder, Plan: plan}}, Jobs: 2}
		if plan.Recipe.Workload != "" {
			p.Bench = f
		}
		if plan.Recipe.Slimming != "" {
			p.Slimmer = slimmer{f}
		}
		fmt.Fprintf(&got, "%s %s %s\n", name, plan.Key, stepsDigest(t, &p))
	}
	checkGolden(t, "catalog-keys.txt", got.String())
}

// fixedStock has one version of the distribution's kernel.
type fixedStock struct{ Factory }

func (fixedStock) StockInputs(context.Context) (Inputs, error) { return Inputs{"package": "1"}, nil }

// stepsDigest is of all that the keys of a kernel's steps are made of.
func stepsDigest(t *testing.T, p *Pipeline) string {
	t.Helper()
	g, err := p.Graph()
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]any{}
	for _, name := range g.Names() {
		if step, _ := g.Step(name); !step.Effect && name != StepReport && name != StepVerdict {
			steps[name] = []any{step.Kind, step.Inputs, step.Needs}
		}
	}
	digest, err := graph.ValueDigest(steps)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s, %v; was\n%sand is\n%s", name, err, want, got)
	}
}
