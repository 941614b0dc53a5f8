// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestOptionsTravel(t *testing.T) {
	o := Options{Name: "fake", Catalog: "catalog", Cache: t.TempDir(), Jobs: 2, Programs: "p", Plugin: "q", Command: "c", Machine: "m", Builder: "b", Nodes: []string{"n1", "n2"}, Traces: []string{"t1"}}
	given := o.Nodes
	if err := o.Absolute(); err != nil || !filepath.IsAbs(o.Catalog) || !filepath.IsAbs(o.Nodes[1]) || !filepath.IsAbs(o.Traces[0]) || given[1] != "n2" || o.Current != "" {
		t.Fatalf("%+v, %v", o, err)
	}
	path, err := o.Save()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := o.Save(); err != nil || again != path {
		t.Errorf("the same options are in %s and %s, %v", path, again, err)
	}
	if got, err := LoadOptions(path); err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("%+v, %v", got, err)
	}
	o.Jobs = 3
	if other, err := o.Save(); err != nil || other == path {
		t.Errorf("other options are in the same file, %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(o.Cache, "plans", ".*")); err != nil || left != nil {
		t.Errorf("left %v, %v", left, err)
	}
	if err := os.WriteFile(path, []byte(`{"nam":"x"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOptions(path); err == nil || !strings.Contains(err.Error(), `unknown field "nam"`) {
		t.Error(err)
	}
}

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	executable := filepath.Join(dir, "bin", "kernelctl")
	var o Options
	o.Locate(executable)
	libexec := filepath.Join(dir, "libexec", "kernel-broker")
	if o.Plugin != libexec+"/kbcount.so" || o.Programs != libexec+"/workloads" || o.Catalog != dir+"/share/kernel-broker/catalog" {
		t.Errorf("installed: %+v", o)
	}
	for _, path := range []string{"measure/kbcount.so", "workloads"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("catalog", 0o755); err != nil {
		t.Fatal(err)
	}
	o = Options{}
	o.Locate(executable)
	if o.Plugin != filepath.Join(dir, "measure", "kbcount.so") || o.Programs != filepath.Join(dir, "workloads") || o.Catalog != "catalog" {
		t.Errorf("in a build folder: %+v", o)
	}
	o = Options{Programs: "mine", Plugin: "mine", Catalog: "mine"}
	if o.Locate(executable); o.Programs != "mine" || o.Plugin != "mine" || o.Catalog != "mine" {
		t.Errorf("given: %+v", o)
	}
}

// Where make install puts things is where they are looked for.
func TestInstalledPlaces(t *testing.T) {
	text, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{
		"libexecdir  ?= $(prefix)/libexec/kernel-broker\n", "datadir     ?= $(prefix)/share/kernel-broker\n",
		"-t $(DESTDIR)$(libexecdir) build/measure/kbcount.so\n", "-t $(DESTDIR)$(libexecdir)/workloads {} +\n",
		"$(abspath $(DESTDIR)$(datadir))/catalog/{}",
	} {
		if !strings.Contains(string(text), words) {
			t.Errorf("make install does not say %q", words)
		}
	}
}

// Training data say what an earlier slimming and an earlier run found: they take the
// place of neither where a build is given more to go by.
func TestTrainingIsLeftAside(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    bool
	}{
		"nothing given": {Options{}, true},
		"told to":       {Options{Train: true}, false},
		"counters":      {Options{Counters: []Counters{{Run: 7}}}, false},
		"traces":        {Options{Traces: []string{"a"}}, false},
		"branches":      {Options{Samples: []Samples{{Path: "a"}}}, false},
		"nodes":         {Options{Nodes: []string{"nodes.json"}}, false},
	} {
		if got := c.options.trained(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for words, o := range map[string]Options{
		"0 compilers at a time":           {Name: "mitgcm", Catalog: "../../../catalog"},
		`kernel "nothing": no such recip`: {Name: "nothing", Catalog: "../../../catalog", Jobs: 1},
		`kernel "server": --nodes says what slimming keeps, and its recipe does not say slimming: trace`: {Name: "server", Catalog: "../../../catalog", Jobs: 1, Nodes: []string{"nodes.json"}},
		`kernel "mitgcm": --aliases says which drivers`:                                                  {Name: "mitgcm", Catalog: "../../../catalog", Jobs: 1, Aliases: "modules.alias"},
	} {
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}
