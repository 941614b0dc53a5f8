// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/training"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// learned is what a build by one world's runs saved.
func learned(t *testing.T, change func(*build.Recipe)) (*Training, *Candidate) {
	t.Helper()
	w := newWorld(t, change)
	w.pipe.SaveTraining = filepath.Join(t.TempDir(), "fake.tar.zst")
	candidate, _, err := w.build()
	if err != nil || w.pipe.SavedTraining() == "" {
		t.Fatalf("saved %q, %v", w.pipe.SavedTraining(), err)
	}
	made := &Training{Dir: t.TempDir(), Digest: w.pipe.SavedTraining(), Same: true}
	if made.Facts, err = training.Unpack(t.Context(), w.pipe.SaveTraining, made.Digest, "fake", made.Dir); err != nil {
		t.Fatal(err)
	}
	if again, _, err := w.build(); err != nil || w.pipe.SavedTraining() != made.Digest {
		t.Errorf("again: %+v saved %q, first %q, %v", again, w.pipe.SavedTraining(), made.Digest, err)
	}
	return made, candidate
}

// The report of what jobs get today compares it with itself. Training data take the one by which it won.
func TestSaveTrainingOfTheCurrentKernel(t *testing.T) {
	w := newWorld(t, nil)
	won, _, err := w.build()
	if err != nil || !won.Benefit() {
		t.Fatalf("%+v, %v", won, err)
	}
	w.pipe.Current = won.Kernel
	w.pipe.SaveTraining = filepath.Join(t.TempDir(), "fake.tar.zst")
	if _, _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := training.Unpack(t.Context(), w.pipe.SaveTraining, w.pipe.SavedTraining(), "fake", dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, training.Report, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := kernelreport.ReadMeasurement(text, build.Manifest{Image: build.File{Digest: won.ImageDigest}}); err != nil || !reflect.DeepEqual(m, won.Measured) {
		t.Errorf("packed %+v, %v; it won by %+v", m, err, won.Measured)
	}
	// It was built and published elsewhere.
	w.pipe.SaveTraining = filepath.Join(t.TempDir(), "fake.tar.zst")
	if err := os.RemoveAll(w.pipe.Candidates.Dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.build(); !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "--publish never") {
		t.Errorf("no report by which it won: %v", err)
	}
	if _, err := os.Stat(w.pipe.SaveTraining); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("saved all the same: %v", err)
	}
}

// The same kernel, without a run and without the kernels on the way.
func TestTrainedElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*build.Recipe)
		worked string
	}{
		"slimmed and counted": {nil, "configure optimised, compile optimised, source"},
		"only counted":        {func(r *build.Recipe) { r.Slimming = "" }, "configure optimised, compile optimised, source"},
		"only slimmed":        {func(r *build.Recipe) { r.Optimisation = "" }, "configure plain, compile plain, source"},
		"by branches":         {func(r *build.Recipe) { r.Slimming, r.Optimisation = "", build.OptimiseAutoFDO }, "configure optimised, compile optimised, source"},
	} {
		made, candidate := learned(t, c.change)
		w := newWorld(t, c.change)
		w.pipe.Kernels, w.pipe.Bench, w.pipe.Training = whole{w.pipe.Kernels}, nil, made
		out := t.TempDir()
		manifest, err := w.pipe.BuildGiven(t.Context(), w.runner(), "", out, t.Logf)
		if err != nil || manifest.Image.Digest != candidate.ImageDigest {
			t.Errorf("%s: image %s, trained here %s, %v", name, manifest.Image.Digest, candidate.ImageDigest, err)
		}
		want := strings.Split(c.worked, ", ")
		slices.Sort(want)
		slices.Sort(w.worked)
		if !slices.Equal(w.worked, want) {
			t.Errorf("%s: worked on %s", name, strings.Join(w.worked, ", "))
		}
		if _, err := os.Stat(filepath.Join(out, reportFile)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A whole build takes them too, and measures for itself.
func TestTrainedElsewhereAndMeasuredHere(t *testing.T) {
	made, first := learned(t, nil)
	w := newWorld(t, nil)
	w.pipe.Training = made
	candidate, worked, err := w.build()
	if err != nil || !candidate.Benefit() || candidate.ImageDigest != first.ImageDigest || candidate.Measured == nil {
		t.Errorf("%+v, %v", candidate, err)
	}
	for _, run := range []string{"profile", "slim", "compile traced", "compile instrumented"} {
		if strings.Contains(worked, run) {
			t.Errorf("worked on %s: %s", run, worked)
		}
	}
}

// The same runs with a new report: of a kernel whose image changed and whose code did not.
func TestSaveTrainingMeasuredAnew(t *testing.T) {
	made, _ := learned(t, nil)
	made.Source, made.Workload, made.Image = "linux-source-6.1 6.1.1", "write8, seed 11, size 12", "sha256:another"
	w := newWorld(t, nil)
	w.pipe.Training = made
	w.pipe.SaveTraining = filepath.Join(t.TempDir(), "fake.tar.zst")
	candidate, worked, err := w.build()
	if err != nil || strings.Contains(worked, "instrumented") {
		t.Fatalf("worked on %s, %v", worked, err)
	}
	dir := t.TempDir()
	facts, err := training.Unpack(t.Context(), w.pipe.SaveTraining, w.pipe.SavedTraining(), "fake", dir)
	if err != nil || facts.Image != candidate.ImageDigest || facts.Source != made.Source || facts.Workload != made.Workload {
		t.Errorf("of %+v, built from %+v, %v", facts, made.Facts, err)
	}
	empty, err := graph.TreeDigest(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{training.Slimming, training.Profile} {
		before, err := graph.TreeDigest(filepath.Join(made.Dir, folder))
		after, err2 := graph.TreeDigest(filepath.Join(dir, folder))
		if before != after || before == empty || err != nil || err2 != nil {
			t.Errorf("%s: %s, before %s, %v, %v", folder, after, before, err, err2)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, training.Report, reportFile)); err != nil {
		t.Error(err)
	} else if _, err := kernelreport.ReadMeasurement(text, build.Manifest{Image: build.File{Digest: candidate.ImageDigest}}); err != nil {
		t.Error(err)
	}
}

// The data may be of another run than the workload trains with today: the kernel is
// not judged by what went into it.
func TestTrainedElsewhereOnTheTest(t *testing.T) {
	made, _ := learned(t, nil)
	w := newWorld(t, nil)
	w.pipe.Training = made
	if candidate, _, err := w.build(); err != nil || !candidate.Benefit() {
		t.Fatalf("%+v, %v", candidate, err)
	}
	made.Workload = "write8, seed 7, size 40" // the test has this seed
	candidate, _, err := w.build()
	if err != nil || candidate.Outcome != kb.OutcomeRefused || !strings.Contains(candidate.Reason, "fake was trained on write8 with seed 7") {
		t.Errorf("%+v, %v", candidate, err)
	}
	for _, text := range []string{"", "counters of run 12", "write8, seed x, size 1"} {
		if run, known := trainingRun(text); known {
			t.Errorf("%q: %+v", text, run)
		}
	}
}

// of rewrites the report in training data, as if its kernel were another one of that
// source and compiler.
func (t *Training) of(tb testing.TB, version, compiler string) {
	tb.Helper()
	path := filepath.Join(t.Dir, training.Report, reportFile)
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	changed := strings.NewReplacer(t.Image, digest("another image"), `"linux-source-6.1 1"`, `"linux-source-6.1 `+version+`"`, `"compiler_version": ""`, `"compiler_version": "`+compiler+`"`).Replace(string(text))
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		tb.Fatal(err)
	}
	t.Same, t.Image, t.Source = false, digest("another image"), "linux-source-6.1 "+version
}

// A kernel by the same profile of another version of the source has the report, which says what it is of.
func TestTrainedOnAnotherVersion(t *testing.T) {
	made, _ := learned(t, nil)
	made.of(t, "0.9-2", "")
	w := newWorld(t, nil)
	w.pipe.Kernels, w.pipe.Bench, w.pipe.Training = whole{w.pipe.Kernels}, nil, made
	out, said := t.TempDir(), ""
	manifest, err := w.pipe.BuildGiven(t.Context(), w.runner(), "", out, func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" })
	if err != nil || !strings.Contains(said, "its gain was measured on 0.9-2, and this is 1;") {
		t.Fatalf("said %s, %v", said, err)
	}
	text, err := os.ReadFile(filepath.Join(out, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := kernelreport.ReadMeasurement(text, manifest); err != nil || m.MeasuredOn != "0.9-2" || m.Outcome != kb.OutcomeBenefit {
		t.Errorf("%+v, %v", m, err)
	}
}

// Another compiler's kernel is not the one that was measured, and nothing is said
// of it. A profile that does not fit it is left out, unless it should fit.
func TestTrainedOnAnother(t *testing.T) {
	made, _ := learned(t, nil)
	made.of(t, "6.1.1", "another")
	for name, c := range map[string]struct {
		same, unfit bool
		optimised   bool
		err         error
	}{
		"fits":                 {optimised: true},
		"does not fit":         {unfit: true},
		"does not fit and has": {same: true, unfit: true, err: pgo.ErrUnfit},
	} {
		w := newWorld(t, nil)
		made.Same = c.same
		w.pipe.Kernels, w.pipe.Bench, w.pipe.Training = whole{w.pipe.Kernels}, nil, made
		if c.unfit {
			w.fail["compile optimised"] = fmt.Errorf("70 functions: %w", pgo.ErrUnfit)
		}
		out, said := t.TempDir(), ""
		if err := os.WriteFile(filepath.Join(out, reportFile), []byte("of yesterday"), 0o600); err != nil {
			t.Fatal(err)
		}
		manifest, err := w.pipe.BuildGiven(t.Context(), w.runner(), "", out, func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" })
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if c.err != nil {
			continue
		}
		if is := manifest.Profile != nil; is != c.optimised || strings.Contains(said, "without its profile") == c.optimised || !strings.Contains(said, "not measured: the catalog's report is about linux-source-6.1 6.1.1 by ") {
			t.Errorf("%s: profile %t, said %s", name, is, said)
		}
		if _, err := os.Stat(filepath.Join(out, reportFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a report about another kernel: %v", name, err)
		}
	}
}

// shelf is a catalog with training data of one recipe.
type shelf struct {
	t       *testing.T
	catalog string
	made    *Training
	recipe  build.Recipe
	patches []build.Patch
	own     []kconfig.Option
	cache   build.Cache
}

func newShelf(t *testing.T) *shelf {
	made, _ := learned(t, nil)
	return &shelf{t: t, catalog: t.TempDir(), made: made, cache: build.Cache{Dir: t.TempDir()},
		recipe: build.Recipe{Name: "fake", Optimisation: build.OptimisePGO, Slimming: build.SlimmingTrace, Workload: "write8"}}
}

func (s *shelf) both() map[string]string {
	return map[string]string{training.Slimming: filepath.Join(s.made.Dir, training.Slimming), training.Profile: filepath.Join(s.made.Dir, training.Profile)}
}

func (s *shelf) packed(change func(*training.Facts), folders map[string]string) string {
	facts := s.made.Facts
	facts.Source, facts.Compiler = "linux-source-6.1 6.1.1-1", "gcc-12; gcc-12 1.0; ld 1.0"
	if change != nil {
		change(&facts)
	}
	sum, err := training.Pack(training.File(s.catalog, "fake"), facts, folders)
	if err != nil {
		s.t.Fatal(err)
	}
	return sum
}

func (s *shelf) factory(sum string) Factory {
	s.recipe.Training = sum
	plan := build.Plan{Recipe: s.recipe, Source: build.SourcePackage{Name: "linux-source-6.1", Version: "6.1.1-1", Patches: s.patches},
		Compiler: build.Compiler{Name: "gcc-12", Version: "gcc-12 1.0", Linker: "ld 1.0"}, Merged: kconfig.Merged{Options: s.own}}
	return Factory{Builder: &build.Builder{Catalog: s.catalog, Cache: s.cache}, Plan: plan}
}

// Training data say what earlier runs found, and take the place of none where a build
// is given more to go by. What they know of slimming is no matter of branches or of the compiler.
func TestWhatOfTrainingIsOfUse(t *testing.T) {
	s := newShelf(t)
	for name, c := range map[string]struct {
		options Options
		of      func(*training.Facts)
		recipe  func(*build.Recipe)
		want    string
	}{
		"nothing given":            {want: "all"},
		"told to":                  {options: Options{Train: true}, want: "nothing"},
		"counters":                 {options: Options{Counters: []Counters{{Run: 7}}}, want: "nothing"},
		"traces":                   {options: Options{Traces: []string{"a"}}, want: "nothing"},
		"nodes":                    {options: Options{Nodes: []string{"nodes.json"}}, want: "nothing"},
		"branches":                 {options: Options{Samples: []Samples{{Path: "a"}}}, want: "slimming"},
		"branches for nodes":       {options: Options{Samples: []Samples{{Path: "a"}}, Nodes: []string{"nodes.json"}}, want: "nothing"},
		"branches, not slimmed":    {options: Options{Samples: []Samples{{Path: "a"}}}, recipe: func(r *build.Recipe) { r.Slimming = "" }, want: "nothing"},
		"another compiler":         {of: func(f *training.Facts) { f.Compiler = "clang-19; 19; ld" }, want: "slimming"},
		"another, not slimmed":     {of: func(f *training.Facts) { f.Compiler = "clang-19; 19; ld" }, recipe: func(r *build.Recipe) { r.Slimming = "" }, want: "refused"},
		"another source":           {of: func(f *training.Facts) { f.Source = "linux-source-6.12 6.12.1-1" }, want: "refused"},
		"branches, another source": {options: Options{Samples: []Samples{{Path: "a"}}}, of: func(f *training.Facts) { f.Source = "linux-source-6.12 6.12.1-1" }, want: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			if c.recipe != nil {
				c.recipe(&s.recipe)
			}
			made, err := c.options.training(t.Context(), s.factory(s.packed(c.of, s.both())))
			got := "nothing"
			switch {
			case errors.Is(err, training.ErrOther):
				got = "refused"
			case err != nil:
				t.Fatal(err)
			case made != nil && made.SlimmingOnly:
				got = "slimming"
			case made != nil:
				got = "all"
			}
			if got != c.want {
				t.Errorf("%s is of use, want %s", got, c.want)
			}
		})
	}
}

// A build whose profile is another one takes slimming from the data, and no traced kernel.
func TestSlimmedElsewhere(t *testing.T) {
	made, _ := learned(t, nil)
	made.SlimmingOnly = true
	w := newWorld(t, nil)
	w.pipe.Training = made
	w.pipe.SaveTraining = filepath.Join(t.TempDir(), "fake.tar.zst")
	candidate, worked, err := w.build()
	if err != nil || !candidate.Benefit() {
		t.Fatalf("%+v, %v", candidate, err)
	}
	if strings.Contains(worked, "traced") || strings.Contains(worked, "slim") || !strings.Contains(worked, "instrumented") || !strings.Contains(worked, "profile") {
		t.Errorf("worked on %s", worked)
	}
	dir := t.TempDir()
	if _, err := training.Unpack(t.Context(), w.pipe.SaveTraining, w.pipe.SavedTraining(), "fake", dir); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{training.Slimming, training.Profile, training.Report} {
		if _, err := os.Stat(filepath.Join(dir, folder)); err != nil {
			t.Errorf("saved: %v", err)
		}
	}
}

func TestOpenTraining(t *testing.T) {
	s := newShelf(t)
	made := s.made
	packed, both := s.packed, s.both()
	open := func(sum string) (*Training, error) { return s.factory(sum).OpenTraining(t.Context()) }
	if none, err := open(""); none != nil || err != nil {
		t.Errorf("no data: %+v, %v", none, err)
	}
	got, err := open(packed(nil, both))
	if err != nil || !got.Same || got.BuildID != made.BuildID {
		t.Errorf("%+v, %v", got, err)
	}
	// docs/ops/kernels.md: own patches and fragments do not make it another source.
	s.patches, s.own = []build.Patch{{Name: "own.patch", Digest: "sha256:1"}}, []kconfig.Option{{Symbol: "OWN", Value: "y"}}
	if got, err = open(packed(nil, both)); err != nil || !got.Same {
		t.Errorf("own patches and fragments: %+v, %v", got, err)
	}
	s.patches, s.own = nil, nil
	got, err = open(packed(func(f *training.Facts) { f.Source = "linux-source-6.1 6.1.0-9" }, both))
	if err != nil || got.Same {
		t.Errorf("of a point release before: %+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		sum  func() string
		want string
	}{
		"another compiler": {func() string { return packed(func(f *training.Facts) { f.Compiler = "clang-19; 19; ld" }, both) }, "training data are of another kernel"},
		"no profile":       {func() string { return packed(nil, map[string]string{training.Slimming: both[training.Slimming]}) }, "has no profile"},
		"another digest":   {func() string { packed(nil, both); return "sha256:" + strings.Repeat("0", 64) }, "the recipe's key training says"},
	} {
		if _, err := open(c.sum()); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--train") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The file of a recipe that was copied from another.
	sum := packed(nil, both)
	if _, err := open(sum); err != nil {
		t.Fatal(err)
	}
	s.recipe.Name = "other"
	data, err := os.ReadFile(training.File(s.catalog, "fake"))
	if err == nil {
		err = os.WriteFile(training.File(s.catalog, "other"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(sum); !errors.Is(err, training.ErrOther) {
		t.Errorf("another kernel's data, unpacked before: %v", err)
	}
}
