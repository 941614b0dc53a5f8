// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// fake is a factory and a bench in one. Its kernels are
// texts, and cost says how many instructions a kernel takes by what is in it.
type fake struct {
	mu       sync.Mutex
	worked   []string
	cost     map[string]float64 // by a word in the image
	fail     map[string]error   // by "method" or "method variant"
	wrong    string             // the check that fails on profiled kernels
	console  string             // what a guest with one says last
	source   string
	after    func(step string) // called when the work of a step is done
	profiled pgo.Sections      // text of the kernel with a profile
}

func newFake() *fake {
	return &fake{cost: map[string]float64{"stock": 1800, "plain": 1280, "optimised": 1220}, fail: map[string]error{}, source: "6.1-1",
		profiled: pgo.Sections{Text: 300, Unlikely: 600, Hot: 20}}
}

func (f *fake) did(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.worked = append(f.worked, what)
	return f.fail[what]
}

func (f *fake) done(what string, err error) error {
	if err == nil && f.after != nil {
		f.after(what)
	}
	return err
}

func (f *fake) Source(_ context.Context, w *graph.Work) error {
	return f.done("source", errors.Join(f.did("source"), put(w, "source.json", f.source)))
}

func (f *fake) SourceInputs() (pipeline.Inputs, error) {
	return pipeline.Inputs{"version": f.source}, nil
}

func (f *fake) Configure(_ context.Context, v build.Variant, slim string, w *graph.Work) error {
	text := "CONFIG_A=y\nCONFIG_B=y\n"
	if slim != "" {
		fragment, err := os.ReadFile(slim)
		if err != nil {
			return err
		}
		text = "CONFIG_A=y\n" + string(fragment)
	}
	if v == build.Instrumented {
		text += "CONFIG_GCOV_KERNEL=y\n"
	}
	return f.done("configure "+string(v), errors.Join(f.did("configure "+string(v)), put(w, build.ConfigFile, text)))
}

func (f *fake) ConfigureInputs(v build.Variant) (pipeline.Inputs, error) {
	return pipeline.Inputs{"variant": string(v)}, nil
}

func (f *fake) Compile(_ context.Context, v build.Variant, config, profile string, w *graph.Work) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	image := string(v) + "\n" + string(text)
	manifest := build.Manifest{Variant: v, Sections: &pgo.Sections{Text: 970, Unlikely: 30}}
	if profile != "" {
		counts, err := os.ReadFile(filepath.Join(profile, "counts"))
		if err != nil {
			return err
		}
		image += string(counts)
		manifest.Profile = &build.Use{Digest: digest(string(counts)), Objects: 2,
			Complaints: pgo.Complaints{Mismatched: []string{"fs/namei.o: path_openat"}},
			Excluded:   []build.Exclusion{{Object: "lib/odd.o", Reason: "does not compile with its profile"}}}
		manifest.Sections = &f.profiled
	}
	for done := range 3 {
		w.Units(done+1, 3)
	}
	what := "compile " + string(v)
	return f.done(what, errors.Join(f.did(what), put(w, build.ConfigFile, string(text)), put(w, build.SystemMapFile, fakeMap), kernel(w.Dir, "6.1-fake", image, manifest)))
}

const fakeMap = `ffffffff81000000 T hot
ffffffff81000010 T cold
ffffffff81000030 T _etext
ffffffff82000000 t started
ffffffff82000010 T _end
`

func (f *fake) CompileInputs(v build.Variant) (pipeline.Inputs, error) {
	return pipeline.Inputs{"variant": string(v)}, nil
}

func (f *fake) Stock(_ context.Context, w *graph.Work) error {
	return f.done("stock", errors.Join(f.did("stock"), put(w, build.ConfigFile, ""), kernel(w.Dir, "6.1-stock", "stock", build.Manifest{})))
}

func (f *fake) StockInputs(context.Context) (pipeline.Inputs, error) {
	return pipeline.Inputs{"package": "1"}, nil
}

func (f *fake) Workload() pipeline.Workload {
	return pipeline.Workload{Name: "write8", Application: "fake", Description: "writes", Operation: "write of 8 bytes",
		Train: verdict.Run{Workload: "write8", Seed: 1, Size: 100}, Test: verdict.Run{Workload: "write8", Seed: 7, Size: 300}, Required: []string{"write8"}}
}

func (f *fake) Inputs() (pipeline.Inputs, error) { return pipeline.Inputs{"workload": "1"}, nil }

func (f *fake) Boot(_ context.Context, _ string, _ *graph.Work) error {
	return f.done("boot", f.did("boot"))
}

func (f *fake) Trace(_ context.Context, image string, w *graph.Work) error {
	what := "trace"
	if text, err := os.ReadFile(filepath.Join(image, build.ImageFile)); err == nil && strings.HasPrefix(string(text), "optimised") && f.fail["trace optimised"] != nil {
		what = "trace optimised"
	}
	return f.done("trace", errors.Join(f.did(what), put(w, "run.trace", "ffffffff81000000 ffffffff81000004\n"), put(w, "work.trace", "")))
}

func (f *fake) Record(context.Context, autofdo.Sampling, string, *graph.Work) error {
	return errors.New("no kernel here is optimised by its branches")
}

func (f *fake) Profile(_ context.Context, image string, w *graph.Work) error {
	text, err := os.ReadFile(filepath.Join(image, build.ImageFile))
	if err != nil || !strings.Contains(string(text), "GCOV_KERNEL") {
		return fmt.Errorf("the kernel counts nothing: %w", err)
	}
	err = os.Mkdir(filepath.Join(w.Dir, "profile"), 0o755)
	return f.done("profile", errors.Join(f.did("profile"), err, put(w, "profile"+"/counts", "counted")))
}

func (f *fake) Measure(_ context.Context, image string, data pipeline.Data, w *graph.Work) error {
	text, err := os.ReadFile(filepath.Join(image, build.ImageFile))
	if err != nil {
		return err
	}
	word, _, _ := strings.Cut(string(text), "\n")
	run := f.Workload().Run(data)
	sample := verdict.Sample{Workload: "write8", Metric: verdict.KernelWeighed, Unit: "instructions/operation", Exact: true,
		Values: []float64{f.cost[word]}, Seed: run.Seed, Size: run.Size, Operations: run.Size}
	check := verdict.CheckRun{Workload: "write8", Passed: true}
	if word == "optimised" && f.wrong != "" {
		check.Passed, check.Detail = false, f.wrong
	}
	text, err = json.Marshal(pipeline.Measured{Samples: []verdict.Sample{sample}, Checks: []verdict.CheckRun{check}, Console: f.console})
	what := fmt.Sprintf("measure %s %s", word, data)
	return f.done(what, errors.Join(f.did(what), err, put(w, pipeline.MeasuredFile, string(text))))
}

func put(w *graph.Work, name, text string) error {
	return os.WriteFile(filepath.Join(w.Dir, name), []byte(text), 0o644)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// kernel writes image and manifest.
func kernel(dir, release, image string, m build.Manifest) error {
	m.Format, m.Name, m.Release, m.BuildID, m.Architecture = 1, "fake", release, digest(image)[7:47], "x86_64"
	m.Image = build.File{Name: build.ImageFile, Digest: digest(image), Size: int64(len(image))}
	m.Source = build.Source{Package: "linux-source-6.1", Version: "1", Digest: digest("source")}
	return errors.Join(m.Write(dir), os.WriteFile(filepath.Join(dir, build.ImageFile), []byte(image), 0o644))
}

// world is a pipeline on fakes, with a store of its own.
type world struct {
	*fake
	t    *testing.T
	dir  string
	pipe *pipeline.Pipeline
}

func newWorld(t *testing.T, change func(*build.Recipe)) *world {
	t.Helper()
	w := &world{fake: newFake(), t: t, dir: quickDir(t)}
	w.pipe = w.kernel(change)
	return w
}

func (w *world) kernel(change func(*build.Recipe)) *pipeline.Pipeline {
	recipe := build.Recipe{Name: "fake", Description: "a kernel of nothing", Workload: "write8", Optimisation: build.OptimisePGO}
	if change != nil {
		change(&recipe)
	}
	p := &pipeline.Pipeline{Recipe: recipe, Kernels: w.fake, Bench: w.fake, Jobs: 2, Command: "test", Machine: "here",
		Rules: verdict.DefaultRules(), Candidates: pipeline.CandidatesIn(w.dir), Store: pipeline.StoreIn(w.dir)}
	if recipe.Workload == "" {
		p.Bench = nil
	}
	return p
}

func (w *world) runner() *graph.Runner {
	return &graph.Runner{Store: pipeline.StoreIn(w.dir), Parallel: 1}
}

// build builds and returns what was worked on, sorted.
func (w *world) build(until ...string) (*pipeline.Candidate, string, error) {
	w.t.Helper()
	w.worked = nil
	candidate, err := w.pipe.Build(w.t.Context(), w.runner(), until...)
	slices.Sort(w.worked)
	return candidate, strings.Join(w.worked, ", "), err
}

// quickDir is in memory where there is such a place, as nothing here tests the
// disk.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pipeline-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
