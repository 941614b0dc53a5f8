// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// otherLoad is the fake's bench with a workload of another name, under which a
// kernel that has the word in its image needs more.
type otherLoad struct {
	*fake
	name, slow string
}

func (o otherLoad) Workload() pipeline.Workload {
	w := o.fake.Workload()
	w.Name, w.Required = o.name, []string{o.name}
	w.Train.Workload, w.Test.Workload = o.name, o.name
	return w
}

func (o otherLoad) Inputs() (pipeline.Inputs, error) { return pipeline.Inputs{"workload": o.name}, nil }

func (o otherLoad) Measure(ctx context.Context, image string, data pipeline.Data, w *graph.Work) error {
	if err := o.fake.Measure(ctx, image, data, w); err != nil {
		return err
	}
	var measured pipeline.Measured
	if err := readJSON(filepath.Join(w.Dir, pipeline.MeasuredFile), &measured); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(image, build.ImageFile))
	if err != nil {
		return err
	}
	for i := range measured.Samples {
		measured.Samples[i].Workload = o.name
		if strings.HasPrefix(string(text), o.slow) {
			measured.Samples[i].Values[0] *= 2
		}
	}
	for i := range measured.Checks {
		measured.Checks[i].Workload = o.name
	}
	out, err := json.Marshal(measured)
	return errors.Join(err, put(w, pipeline.MeasuredFile, string(out)))
}

func (w *world) sideBySide() *SideBySide {
	plain := w.kernel(func(r *build.Recipe) { r.Name, r.Workload, r.Optimisation = "slim", "", "" })
	profiled := w.kernel(nil)
	return &SideBySide{Name: "bench", Title: "Side by side", Slim: "slim", Kernels: []*pipeline.Pipeline{plain, profiled},
		Benches: []pipeline.Bench{w.fake, otherLoad{w.fake, "tcp", "optimised"}}, Command: "test", Machine: "here", Rules: verdict.DefaultRules()}
}

func TestOwnKernel(t *testing.T) {
	s := newWorld(t, nil).sideBySide()
	for _, c := range []struct{ name, like, own string }{
		{"write8", "", "fake"},
		{"write9", "write8", "fake"},
		{"write9", "", ""},
		{"write9", "tcp", ""},
	} {
		if own := s.madeFor(pipeline.Workload{Name: c.name, Like: c.like}); own != c.own {
			t.Errorf("the own kernel of %s, like %q, is %q, want %q", c.name, c.like, own, c.own)
		}
	}
}

func TestSideBySide(t *testing.T) {
	w := newWorld(t, nil)
	folder, err := w.sideBySide().Run(t.Context(), w.runner())
	if err != nil {
		t.Fatal(err)
	}
	made, err := readReport(folder)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, k := range made.Facts.Kernels {
		names = append(names, k.Name)
	}
	if !slices.Equal(names, []string{"stock", "slim", "fake"}) {
		t.Errorf("kernels %v", names)
	}
	rows := made.Cross[0].Rows
	if len(rows) != 2 || rows[0].Own != "fake" || rows[0].Place != First || rows[1].Own != "" || rows[1].Best[0] != "slim" {
		t.Errorf("cross table %+v", rows)
	}
	if trained := made.Facts.Kernels[2].Trained; len(trained) != 1 || trained[0] != w.Workload().Train {
		t.Errorf("trained on %v", trained)
	}
	if len(made.Goals) != 7 {
		t.Errorf("goals %+v", made.Goals)
	}
	text, err := os.ReadFile(filepath.Join(folder, TextFile))
	if err != nil || !strings.Contains(string(text), "Side by side") {
		t.Errorf("text %.100s, %v", text, err)
	}
	// Nothing is measured twice, and the source is the same for all.
	for _, once := range []string{"source", "stock", "profile", "compile plain", "measure stock test"} {
		if n := count(w.worked, once); once != "measure stock test" && n != 1 || n > 2 {
			t.Errorf("%s was done %d times: %v", once, n, w.worked)
		}
	}
}

func count(all []string, one string) (n int) {
	for _, each := range all {
		if each == one {
			n++
		}
	}
	return n
}

// What the build of a kernel has measured, the bench takes, and the second run
// of a bench does nothing.
func TestSideBySideSharesWork(t *testing.T) {
	w := newWorld(t, nil)
	if _, _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	w.worked = nil
	if _, err := w.sideBySide().Run(t.Context(), w.runner()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(w.worked)
	// Only the other workload is new.
	want := "measure optimised test, measure plain test, measure stock test"
	if got := strings.Join(w.worked, ", "); got != want {
		t.Errorf("worked on %s, want %s", got, want)
	}
	w.worked = nil
	if _, err := w.sideBySide().Run(t.Context(), w.runner()); err != nil || w.worked != nil {
		t.Errorf("again: worked on %v, %v", w.worked, err)
	}
}

// The order of kernels is that of columns, and says which of several is an
// application's own: the table is made anew with it, and nothing else.
func TestSideBySideInAnotherOrder(t *testing.T) {
	w := newWorld(t, nil)
	bench := w.sideBySide()
	if _, err := bench.Run(t.Context(), w.runner()); err != nil {
		t.Fatal(err)
	}
	w.worked = nil
	slices.Reverse(bench.Kernels)
	folder, err := bench.Run(t.Context(), w.runner())
	if err != nil {
		t.Fatal(err)
	}
	made, err := readReport(folder)
	if err != nil {
		t.Fatal(err)
	}
	if kernels := made.Facts.Kernels; len(kernels) != 3 || kernels[1].Name != "fake" || kernels[2].Name != "slim" || w.worked != nil {
		t.Errorf("kernels %+v, worked on %v", kernels, w.worked)
	}
}

// A workload that fails on a kernel is told, and its row has a hole.
func TestSideBySideWithAFailure(t *testing.T) {
	w := newWorld(t, nil)
	w.wrong = "byte 17 is 0x00"
	folder, err := w.sideBySide().Run(t.Context(), w.runner())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, TextFile))
	if err != nil || !strings.Contains(string(text), "FAILED  byte 17 is 0x00") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestSideBySideRefuses(t *testing.T) {
	w := newWorld(t, nil)
	for name, change := range map[string]func(*SideBySide){
		"no kernel":      func(s *SideBySide) { s.Kernels = nil },
		"no workload":    func(s *SideBySide) { s.Benches = nil },
		"a kernel twice": func(s *SideBySide) { s.Kernels = append(s.Kernels, s.Kernels[0]) },
		"a kernel that cannot be": func(s *SideBySide) {
			s.Kernels = append(s.Kernels, w.kernel(func(r *build.Recipe) { r.Name, r.Workload = "x", "" }))
		},
	} {
		s := w.sideBySide()
		change(s)
		if _, err := s.Graph(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParsePlan(t *testing.T) {
	const good = "name: x\ntitle: X\nslim: a\nkernels: [a, b]\nworkloads: [w]\n"
	if plan, err := ParsePlan("x.yaml", []byte(good)); err != nil || len(plan.Kernels) != 2 {
		t.Errorf("%+v, %v", plan, err)
	}
	for _, c := range []struct{ from, to, says string }{
		{"title: X", "titel: X", `line 2: field titel not found`},
		{"title: X\n", "", `key "title": missing`},
		{"slim: a", "slim: c", `x.yaml: key "slim": "c" is none`},
		{"[a, b]", "[a, a]", `x.yaml: key "kernels": "a" stands twice`},
		{"[a, b]", "[a, stock]", `x.yaml: key "kernels": "stock" takes part`},
		{"[a, b]", "[]", `x.yaml: key "kernels": none`},
		{"[w]", "[]", `x.yaml: key "workloads": none`},
		{"[w]", "[w, w]", `x.yaml: key "workloads": "w" stands twice`},
		{"[w]", "[../w]", `x.yaml: key "workloads": "../w" is not allowed`},
		{"name: x", "name: X", `x.yaml: key "name": "X" is not allowed`},
		{"[w]", "[w]\n---\nname: y", "more than one document"},
	} {
		_, err := ParsePlan("x.yaml", []byte(strings.Replace(good, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	if _, err := LoadPlan(t.TempDir(), "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// The catalog's benches name recipes and workloads that are there.
func TestBenchesOfTheCatalog(t *testing.T) {
	const catalog = "../../../catalog"
	paths, err := filepath.Glob(filepath.Join(catalog, "benches", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d benches, %v", len(paths), err)
	}
	for _, path := range paths {
		plan, err := LoadPlan(catalog, strings.TrimSuffix(filepath.Base(path), ".yaml"))
		if err != nil {
			t.Error(err)
		}
		var loads []string
		for _, name := range plan.Workloads {
			load, err := workload.Load(catalog, name)
			if err != nil {
				t.Error(err)
			}
			loads = append(loads, load.Name, load.Like)
		}
		for _, name := range plan.Kernels {
			recipe, err := build.LoadRecipe(catalog, name)
			if err == nil && recipe.Workload != "" && !slices.Contains(loads, recipe.Workload) {
				err = fmt.Errorf("%s: kernel %q was made for workload %q, and neither that runs nor one like it", path, name, recipe.Workload)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func FuzzParsePlan(f *testing.F) {
	f.Add("name: x\ntitle: X\nslim: a\nkernels: [a, b]\nworkloads: [w]\n")
	f.Fuzz(func(t *testing.T, text string) {
		plan, err := ParsePlan("x.yaml", []byte(text))
		if err == nil && (plan.Title == "" || !slices.Contains(plan.Kernels, plan.Slim) || len(plan.Workloads) == 0) {
			t.Errorf("%+v passes", plan)
		}
	})
}

func readReport(folder string) (Report, error) {
	var r Report
	err := readJSON(filepath.Join(folder, JSONFile), &r)
	return r, err
}
