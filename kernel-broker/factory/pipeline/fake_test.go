// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// fake is a factory, a bench, a slimmer and a publisher in one. Its kernels are
// texts, and cost says how many instructions a kernel takes by what is in it.
type fake struct {
	mu       sync.Mutex
	worked   []string
	cost     map[string]float64 // by a word in the image
	fail     map[string]error   // by "method" or "method variant"
	wrong    string             // the check that fails on profiled kernels
	console  string             // what a guest with one says last
	source   string
	refuse   error // of the publisher
	versions []string
	after    func(step string) // called when the work of a step is done
	profiled pgo.Sections      // text of the kernel with a profile
	traces   []slim.JobTrace   // of jobs, for the slimming
	lines    string            // build id of the plain kernel
	bench    string            // version of the workload's programs
	keeps    string            // version of the keep-lists
	load     func(*Workload)   // changes the workload
}

func newFake() *fake {
	return &fake{cost: map[string]float64{"stock": 1800, "plain": 1280, "optimised": 1220}, fail: map[string]error{}, source: "6.1-1", bench: "1", keeps: "1",
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

func (f *fake) SourceInputs() (Inputs, error) { return Inputs{"version": f.source}, nil }

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

func (f *fake) ConfigureInputs(v build.Variant) (Inputs, error) {
	return Inputs{"variant": string(v)}, nil
}

func (f *fake) Compile(_ context.Context, v build.Variant, config, profile string, w *graph.Work) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	image := string(v) + "\n" + string(text)
	manifest := build.Manifest{Variant: v, Sections: &pgo.Sections{Text: 970, Unlikely: 30}}
	if profile != "" {
		file := "counts"
		if _, err := os.Stat(filepath.Join(profile, file)); err != nil {
			file = autofdo.ProfileFile
		}
		counts, err := os.ReadFile(filepath.Join(profile, file))
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
	if v == build.Plain && f.lines != "" {
		manifest.BuildID = f.lines
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

func (f *fake) CompileInputs(v build.Variant) (Inputs, error) {
	return Inputs{"variant": string(v)}, nil
}

func (f *fake) Stock(_ context.Context, w *graph.Work) error {
	return f.done("stock", errors.Join(f.did("stock"), put(w, build.ConfigFile, ""), kernel(w.Dir, "6.1-stock", "stock", build.Manifest{})))
}

func (f *fake) StockInputs(context.Context) (Inputs, error) { return Inputs{"package": "1"}, nil }

func (f *fake) Workload() Workload {
	w := Workload{Name: "write8", Application: "fake", Description: "writes", Operation: "write of 8 bytes",
		Train: verdict.Run{Workload: "write8", Seed: 1, Size: 100}, Test: verdict.Run{Workload: "write8", Seed: 7, Size: 300}, Required: []string{"write8"}}
	if f.load != nil {
		f.load(&w)
	}
	return w
}

func (f *fake) Inputs() (Inputs, error) { return Inputs{"workload": f.bench}, nil }

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

func (f *fake) Profile(_ context.Context, image string, w *graph.Work) error {
	text, err := os.ReadFile(filepath.Join(image, build.ImageFile))
	if err != nil || !strings.Contains(string(text), "GCOV_KERNEL") {
		return fmt.Errorf("the kernel counts nothing: %w", err)
	}
	err = os.Mkdir(filepath.Join(w.Dir, profileDir), 0o755)
	return f.done("profile", errors.Join(f.did("profile"), err, put(w, profileDir+"/counts", "counted")))
}

func (f *fake) Record(_ context.Context, _ autofdo.Sampling, image string, w *graph.Work) error {
	text, err := os.ReadFile(filepath.Join(image, build.ImageFile))
	if err != nil || !strings.HasPrefix(string(text), "plain") {
		return fmt.Errorf("no plain kernel: %w", err)
	}
	err = os.Mkdir(filepath.Join(w.Dir, profileDir), 0o755)
	return f.done("record", errors.Join(f.did("record"), err, put(w, profileDir+"/"+autofdo.ProfileFile, "vfs_write:7:1\n")))
}

func (f *fake) Measure(_ context.Context, image string, data Data, w *graph.Work) error {
	text, err := os.ReadFile(filepath.Join(image, build.ImageFile))
	if err != nil {
		return err
	}
	word, _, _ := strings.Cut(string(text), "\n")
	run := f.Workload().Run(data)
	sample := verdict.Sample{Workload: "write8", Metric: verdict.KernelWeighed, Unit: "instructions/operation", Exact: true,
		Values: []float64{f.cost[word]}, Seed: run.Seed, Size: run.Size, Operations: run.Size}
	own := sample
	own.Metric, own.Values = verdict.UserWeighed, []float64{3840}
	check := verdict.CheckRun{Workload: "write8", Passed: true}
	if word == "optimised" && f.wrong != "" {
		check.Passed, check.Detail = false, f.wrong
	}
	text, err = json.Marshal(Measured{Samples: []verdict.Sample{sample, own}, Checks: []verdict.CheckRun{check}, Console: f.console})
	what := fmt.Sprintf("measure %s %s", word, data)
	return f.done(what, errors.Join(f.did(what), err, put(w, MeasuredFile, string(text))))
}

func (f *fake) Slim(_ context.Context, from Slimming, w *graph.Work) error {
	if _, err := os.Stat(filepath.Join(from.Trace, "run.trace")); err != nil {
		return err
	}
	outcome, err := json.Marshal(slim.Outcome{Name: "fake", Objects: map[slim.Coverage]slim.Sum{slim.Cold: {Objects: 1, Code: 32}}, Proposed: 2, Kernels: 3,
		Gone:   []slim.Decision{{Symbol: "B", Prompt: "The b", Goes: true, Reason: "nothing of it ran", Objects: []string{"b.o"}, Code: 32, Takes: []string{"C"}}},
		Stayed: []slim.Decision{{Symbol: "A", Reason: "without it the boot fails: panic"}}, Along: []string{"C"},
		Missing: []slim.Missing{{Node: "n1", Module: "ixgbe"}}, Runs: slim.Uses{}.AddRuns(f.traces, nil, nil)})
	objects := `{"hot":"fs/hot.o"}`
	return f.done("slim", errors.Join(f.did("slim"), err, put(w, slimFile, "# nothing of it ran\n# CONFIG_B is not set\n"), put(w, outcomeFile, string(outcome)), put(w, objectsOf, objects)))
}

// slimmer has Inputs of its own.
type slimmer struct{ *fake }

func (s slimmer) Inputs() (Inputs, error) {
	inputs := Inputs{"keep": s.keeps}
	return inputs, Tracer{Traces: s.traces}.addRuns(inputs)
}

func (f *fake) Publish(_ context.Context, c Candidate, _ io.Writer) (string, error) {
	if f.refuse != nil {
		return "", f.refuse
	}
	if i := slices.Index(f.versions, c.ImageDigest); i >= 0 {
		return fmt.Sprintf("%s@%d", c.Name, i+1), nil
	}
	f.versions = append(f.versions, c.ImageDigest)
	return fmt.Sprintf("%s@%d", c.Name, len(f.versions)), nil
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
	pipe *Pipeline
}

func newWorld(t *testing.T, change func(*build.Recipe)) *world {
	t.Helper()
	w := &world{fake: newFake(), t: t, dir: quickDir(t)}
	w.pipe = w.pipeline(change)
	return w
}

func (w *world) pipeline(change func(*build.Recipe)) *Pipeline {
	recipe := build.Recipe{Name: "fake", Description: "a kernel of nothing", Workload: "write8", Optimisation: build.OptimisePGO, Slimming: build.SlimmingTrace}
	if change != nil {
		change(&recipe)
	}
	p := &Pipeline{Recipe: recipe, Kernels: w.fake, Bench: w.fake, Slimmer: slimmer{w.fake}, Jobs: 2, Command: "test", Machine: "here",
		Rules: verdict.DefaultRules(), Publisher: w.fake, Candidates: CandidatesIn(w.dir), Store: StoreIn(w.dir)}
	if recipe.Workload == "" {
		p.Bench = nil
	}
	return p
}

func (w *world) runner() *graph.Runner { return &graph.Runner{Store: StoreIn(w.dir), Parallel: 1} }

// build builds and returns what was worked on, sorted.
func (w *world) build(until ...string) (*Candidate, string, error) {
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
