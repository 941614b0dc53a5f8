// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
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
	dir, here := t.TempDir(), t.TempDir()
	t.Chdir(here)
	executable := filepath.Join(dir, "bin", "kernelctl")
	installed := filepath.Join(dir, "share", "kernel-broker", "catalog")
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	var o Options
	o.Locate(executable, say)
	libexec := filepath.Join(dir, "libexec", "kernel-broker")
	if o.Plugin != libexec+"/kbcount.so" || o.Programs != libexec+"/workloads" || o.Catalog != installed || said != nil {
		t.Errorf("installed: %+v, said %q", o, said)
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
	o.Locate(executable, say)
	if o.Plugin != filepath.Join(dir, "measure", "kbcount.so") || o.Programs != filepath.Join(dir, "workloads") || o.Catalog != filepath.Join(here, "catalog") || said != nil {
		t.Errorf("in a build folder: %+v, said %q", o, said)
	}
	o = Options{Programs: "mine", Plugin: "mine", Catalog: "mine"}
	if o.Locate(executable, say); o.Programs != "mine" || o.Plugin != "mine" || o.Catalog != "mine" || said != nil {
		t.Errorf("given: %+v, said %q", o, said)
	}

	// Whoever can write the catalog would run commands as the caller.
	if err := os.Chmod("catalog", 0o777); err != nil {
		t.Fatal(err)
	}
	o = Options{}
	if o.Locate(executable, say); o.Catalog != installed || len(said) != 1 || !strings.Contains(said[0], "catalog is writable by its group or by all") {
		t.Errorf("a catalog that others write: %q, said %q", o.Catalog, said)
	}
	said = nil
	o = Options{Catalog: "catalog"}
	if err := o.Complete(say); err != nil || o.Catalog != filepath.Join(here, "catalog") || len(said) != 1 || said[0] != "catalog: "+o.Catalog {
		t.Errorf("named: %q, %v, said %q", o.Catalog, err, said)
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
