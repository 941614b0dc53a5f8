package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptionsTravel(t *testing.T) {
	o := Options{Name: "fake", Catalog: "catalog", Cache: t.TempDir(), Jobs: 2, Programs: "p", Plugin: "q", Command: "c", Machine: "m", Builder: "b"}
	if err := o.Absolute(); err != nil || !filepath.IsAbs(o.Catalog) || o.Current != "" {
		t.Fatalf("%+v, %v", o, err)
	}
	path, err := o.Save()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := o.Save(); err != nil || again != path {
		t.Errorf("the same options are in %s and %s, %v", path, again, err)
	}
	if got, err := LoadOptions(path); err != nil || got != o {
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
	var o Options
	o.Locate(filepath.Join(dir, "bin", "kernelctl"))
	if o.Plugin != installed+"/kbcount.so" || o.Programs != installed+"/workloads" {
		t.Errorf("installed: %+v", o)
	}
	if err := os.MkdirAll(filepath.Join(dir, "measure"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "measure", "kbcount.so"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o = Options{Programs: "mine"}
	o.Locate(filepath.Join(dir, "bin", "kernelctl"))
	if o.Plugin != filepath.Join(dir, "measure", "kbcount.so") || o.Programs != "mine" {
		t.Errorf("in a build folder: %+v", o)
	}
}

func TestOpenRefuses(t *testing.T) {
	for words, o := range map[string]Options{
		"0 compilers at a time":           {Name: "mitgcm", Catalog: "../../../catalog"},
		`kernel "nothing": no such recip`: {Name: "nothing", Catalog: "../../../catalog", Jobs: 1},
	} {
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}
