// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const catalog = "../../../catalog"

func TestCatalog(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(catalog, "workloads", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range names {
		names[i] = strings.TrimSuffix(filepath.Base(path), ".yaml")
	}
	for _, want := range []string{
		"io-write8", "syscall-mix", "tcp-roundtrip", "postmark", "postmark-2cpu", "postmark-4cpu", "mitgcm-replay", "redis", "nginx",
		"apache", "memcached", "mariadb", "postgresql",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not in the catalog", want)
		}
	}
	for _, name := range names {
		w, err := Load(catalog, name)
		if err != nil {
			t.Error(err)
			continue
		}
		if g := w.Guest(); g.CPUs < 1 || g.MemoryMiB < 64 || g.Limit <= 0 {
			t.Errorf("%s: guest is %+v", name, g)
		}
		// What no marker surrounds is not measured.
		if !strings.Contains(w.Run, "/out/regions") {
			t.Errorf("%s: its run names no regions", name)
		}
	}
}

const good = `name: some
application: Some
description: Does something
operation: thing
programs: [some]
run: some
train: {seed: 1, size: 10}
test: {seed: 2, size: 20}
`

func TestParse(t *testing.T) {
	w, err := Parse("some.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if w.CPUs != 1 || w.MemoryMiB != 512 || w.LimitMinutes != 60 || !w.Exact() || w.Test != (Parameters{Seed: 2, Size: 20}) {
		t.Errorf("workload is %+v", w)
	}
	for _, change := range []string{"cpus: 2", "disk: 64"} {
		if w, err := Parse("some.yaml", []byte(good+change+"\n")); err != nil || w.Exact() {
			t.Errorf("with %q: exact %v, %v", change, w.Exact(), err)
		}
	}
	cases := map[string]struct{ from, to, want string }{
		"unknown key":                         {"run: some", "ran: some", `some.yaml: line 6: unknown key "ran"`},
		"unknown inner key":                   {"seed: 2, ", "sede: 2, ", `some.yaml: line 8: unknown key "sede"`},
		"wrong type":                          {"size: 20", "size: much", "some.yaml: line 8: cannot unmarshal"},
		"no YAML":                             {"run: some", "run: [", "some.yaml:"},
		"no name":                             {"name: some", "name: Some", `some.yaml: line 1: key "name": "Some" is not allowed`},
		"no operation":                        {"operation: thing", "operation: ' '", `some.yaml: line 4: key "operation": is missing`},
		"no run":                              {"run: some\n", "", `some.yaml: line 1: key "run": is missing`},
		"nothing to run":                      {"programs: [some]", "cpus: 1", "neither programs nor packages nor tools"},
		"a path as program":                   {"[some]", "[../some]", `some.yaml: line 5: key "programs": "../some" is not allowed`},
		"a program twice":                     {"[some]", "[some, some]", "there twice"},
		"files of nothing":                    {"run: some", "run: some\nfiles: [/bin/x]", `some.yaml: line 7: key "files": files of packages`},
		"relative config":                     {"run: some", "run: some\nconfig: {etc/x: y}", `some.yaml: line 7: key "config": "etc/x"`},
		"relative tool":                       {"run: some", "run: some\ntools: [/a/../b]", `some.yaml: line 7: key "tools": "/a/../b"`},
		"too many CPUs":                       {"run: some", "run: some\ncpus: 65", `some.yaml: line 7: key "cpus": 65 is not from 1 to 64`},
		"no model":                            {"run: some", "run: some\nprocessor: -Haswell", `some.yaml: line 7: key "processor": "-Haswell" is not a model`},
		"no size":                             {"size: 20", "size: 0", `some.yaml: line 8: key "test": seed 2, size 0`},
		"trained and tested by the same seed": {"seed: 2", "seed: 1", `some.yaml: line 8: key "test": has the seed or the size`},
		"trained and tested by the same size": {"size: 20", "size: 10", `some.yaml: line 8: key "test": has the seed or the size`},
		"two documents":                       {"run: some", "run: some\n---\nname: x", "some.yaml: more than one document"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(good, c.from, c.to, 1)
			if text == good {
				t.Fatalf("%q is not in the text", c.from)
			}
			_, err := Parse("some.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Parse("some.yaml", nil); err == nil || !strings.Contains(err.Error(), "some.yaml: empty file") {
		t.Errorf("error is %v", err)
	}
}

// catalogOf writes a catalog with these workloads.
func catalogOf(t *testing.T, workloads map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "workloads"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range workloads {
		if err := os.WriteFile(filepath.Join(dir, "workloads", name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	dir := catalogOf(t, map[string]string{"other": good})
	for name, want := range map[string]string{
		"other":      `key "name" is "some", the file is named "other"`,
		"absent":     `workload "absent": not in the catalog`,
		"../escape":  "use lower-case letters",
		"Upper-Case": "use lower-case letters",
	} {
		if _, err := Load(dir, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", name, err, want)
		}
	}
}

func TestLike(t *testing.T) {
	dir := catalogOf(t, map[string]string{
		"some":      good + "cpus: 2\nconfig: {/etc/a: a, /etc/b: b}\n",
		"other":     "name: other\nlike: some\nrun: other\nconfig: {/etc/b: c}\ntest: {size: 30}\n",
		"third":     "name: third\nlike: other\n",
		"nothing":   "name: nothing\nlike: absent\n",
		"itself":    "name: itself\nlike: itself\n",
		"wrong":     "name: wrong\nlike: some\nrum: wrong\n",
		"same-size": "name: same-size\nlike: some\ntest: {size: 10}\n",
	})
	other, err := Load(dir, "other")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/etc/a": "a", "/etc/b": "c"}
	if other.Name != "other" || other.Run != "other" || other.Application != "Some" || other.CPUs != 2 ||
		other.Test != (Parameters{Seed: 2, Size: 30}) || !maps.Equal(other.Config, want) {
		t.Errorf("workload is %+v", other)
	}
	for name, want := range map[string]string{
		"third":     `third.yaml: line 2: key "like": workload "other" is itself like "some"`,
		"nothing":   `nothing.yaml: line 2: key "like": workload "absent": not in the catalog`,
		"itself":    `itself.yaml: line 2: key "like": workload "itself" is itself like "itself"`,
		"wrong":     `wrong.yaml: line 3: unknown key "rum"`,
		"same-size": `same-size.yaml: line 3: key "test": has the seed or the size`,
	} {
		if _, err := Load(dir, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", name, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("name: [\n"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := Parse("x.yaml", data)
		if err == nil && (w.Name == "" || w.Run == "" || w.Train.Size == w.Test.Size) {
			t.Errorf("accepted: %+v", w)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "x.yaml:") {
			t.Errorf("error does not name the file: %v", err)
		}
	})
}
