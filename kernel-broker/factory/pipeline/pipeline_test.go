// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

const everything = "boot, compile instrumented, compile optimised, compile plain, compile traced, " +
	"configure instrumented, configure optimised, configure plain, configure traced, " +
	"measure optimised test, measure optimised train, measure plain test, measure stock test, profile, slim, source, stock, trace, trace"

func TestBuild(t *testing.T) {
	w := newWorld(t, nil)
	candidate, worked, err := w.build()
	if err != nil || worked != everything {
		t.Fatalf("worked on %s, %v", worked, err)
	}
	if !candidate.Benefit() || candidate.Published != "fake@1" || !strings.Contains(candidate.Reason, "kernel instructions (strings weighed) -32.2 % on write8") {
		t.Errorf("%+v", candidate)
	}
	file, err := os.Open(candidate.JSON())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var made kernelreport.Report
	err = json.NewDecoder(file).Decode(&made)
	if err != nil || made.Facts.Slim != "slim" || made.Facts.Current != "stock" || len(made.Facts.Kernels) != 3 {
		t.Errorf("%+v, %v", made.Facts, err)
	}
	// Its program does 3,840 instructions of its own beside 1,280 of the slim kernel's.
	if m := candidate.Measured; m == nil || m.Outcome != kb.OutcomeBenefit || m.ToSlim.Kernel.Percent != -4.6875 || m.ToSlim.Share.Percent != 25 ||
		m.ToSlim.Whole.Percent != -1.1719 || m.ToSlim.Source != kb.ShareOfWorkload || m.ToStock.Kernel.Percent != -32.2222 || m.Workload != "write8" {
		t.Errorf("measured %+v", m)
	}
	if s := made.Facts.Symbols; s.HotCount != 1 || s.HotBytes != 16 || s.Hottest[0].Object != "fs/hot.o" || s.ColdCount != 1 || s.Coldest[0].Name != "cold" {
		t.Errorf("symbols %+v", s)
	}
	if cost := made.Facts.Cost; len(cost) < 18 || cost[0].Step != "source" || !cost[0].Plain || cost[0].Before || cost[0].Bytes != 5 || !(cost[0].Seconds > 0) {
		t.Errorf("cost %+v", cost)
	}
	wantOptions := []kernelreport.Option{
		{Symbol: "A", Decision: kernelreport.Kept, Reason: "without it the boot fails: panic"},
		{Symbol: "B", Prompt: "The b", Decision: kernelreport.Removed, Reason: "nothing of it ran", Objects: 1, Bytes: 32},
		{Symbol: "C", Decision: kernelreport.Removed, Reason: "goes with B"},
	}
	if !slices.Equal(made.Facts.Options, wantOptions) || made.Facts.Slimming.Kernels != 3 || made.Facts.Slimming.Missing[0].Module != "ixgbe" {
		t.Errorf("slimming %+v, %+v", made.Facts.Slimming, made.Facts.Options)
	}
	if k := made.Facts.Kernels; k[0].Profile == nil || k[0].Profile.Excluded[0].Object != "lib/odd.o" || len(k[0].Profile.Mismatched) != 1 || k[1].Profile != nil || k[0].Size.Functions != 2 {
		t.Errorf("profile %+v, %+v", k[0].Profile, k[0].Size)
	}
	if page, err := os.ReadFile(candidate.Page()); err != nil || !strings.Contains(string(page), "a kernel of nothing") {
		t.Errorf("page of %d bytes, %v", len(page), err)
	}
	again, worked, err := w.build()
	if err != nil || worked != "" || again.Published != "fake@1" || !again.Made.Equal(candidate.Made) || len(w.versions) != 1 {
		t.Errorf("again: worked on %q, %+v, %v", worked, again, err)
	}
}

// What a recipe does not ask for is not done.
func TestShortWays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*build.Recipe)
		worked string
	}{
		"nothing measured": {func(r *build.Recipe) { r.Workload, r.Optimisation, r.Slimming = "", "", "" },
			"compile plain, configure plain, source"},
		"only measured": {func(r *build.Recipe) { r.Optimisation, r.Slimming = "", "" },
			"boot, compile plain, configure plain, measure plain test, measure plain train, measure stock test, source, stock, trace"},
		"no slimming": {func(r *build.Recipe) { r.Slimming = "" },
			"boot, compile instrumented, compile optimised, compile plain, configure instrumented, configure optimised, configure plain, " +
				"measure optimised test, measure optimised train, measure plain test, measure stock test, profile, source, stock, trace"},
		"no instrumented kernel": {func(r *build.Recipe) { r.Slimming, r.Optimisation = "", build.OptimiseAutoFDO },
			"boot, compile optimised, compile plain, configure optimised, configure plain, " +
				"measure optimised test, measure optimised train, measure plain test, measure stock test, record, source, stock, trace"},
	} {
		w := newWorld(t, c.change)
		if _, worked, err := w.build(); err != nil || worked != c.worked {
			t.Errorf("%s: worked on %s, %v", name, worked, err)
		}
	}
	w := newWorld(t, func(r *build.Recipe) { r.Workload = "" })
	if _, err := w.pipe.Graph(); err == nil || !strings.Contains(err.Error(), "slimming needs a workload") || !strings.Contains(err.Error(), "a profile needs a workload") {
		t.Errorf("no workload: %v", err)
	}
}

func TestNoBenefit(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(w *world)
		outcome kb.Outcome
		reason  string
	}{
		"slower than the current one": {func(w *world) { w.cost["optimised"] = 1900 }, kb.OutcomeNoBenefit, "kernel instructions (strings weighed) +5.6 %"},
		"not correct":                 {func(w *world) { w.wrong = "byte 17 is 0x00" }, kb.OutcomeNoBenefit, "not correct: write8 (byte 17 is 0x00)"},
	} {
		w := newWorld(t, nil)
		c.change(w)
		candidate, _, err := w.build()
		if err != nil || candidate.Outcome != c.outcome || candidate.Published != "" || !strings.Contains(candidate.Reason, c.reason) || w.versions != nil {
			t.Errorf("%s: %+v, %v", name, candidate, err)
		}
		list, err := w.pipe.Candidates.List("fake")
		if err != nil || len(list) != 1 || list[0].Outcome != c.outcome {
			t.Errorf("%s: candidates %+v, %v", name, list, err)
		}
	}
}

// Of some workloads nothing can be told. What was measured before that was known is judged by it, too.
func TestNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		load   func(*Workload)
		reason string
		report string
	}{
		"several CPUs": {func(w *Workload) { w.HostClock = true }, "a workload with one CPU allows a verdict", `"host_clock": true`},
		"no check":     {func(w *Workload) { w.Unchecked = true }, `workload "write8" has no check`, `"not_checked": true`},
	} {
		w := newWorld(t, nil)
		w.pipe.Publisher = nil
		if candidate, _, err := w.build(); err != nil || !candidate.Benefit() {
			t.Fatalf("%s, unknown: %+v, %v", name, candidate, err)
		}
		w.pipe.Publisher, w.load = w.fake, c.load
		candidate, worked, err := w.build()
		if err != nil || worked != "" || candidate.Outcome != kb.OutcomeRefused || !strings.Contains(candidate.Reason, c.reason) || candidate.Published != "" {
			t.Errorf("%s: worked on %q, %+v, %v", name, worked, candidate, err)
		}
		if text, err := os.ReadFile(candidate.JSON()); err != nil || !strings.Contains(string(text), c.report) {
			t.Errorf("%s: no %s in the report, %v", name, c.report, err)
		}
		// It had won before.
		w = newWorld(t, nil)
		won, _, err := w.build()
		if err != nil || !won.Benefit() {
			t.Fatalf("%s, unknown: %+v, %v", name, won, err)
		}
		w.pipe.Current, w.load = won.Kernel, c.load
		if candidate, _, err := w.build(); err != nil || candidate.Outcome != kb.OutcomeRefused || !strings.Contains(candidate.Reason, c.reason) {
			t.Errorf("%s, of the current kernel: %+v, %v", name, candidate, err)
		}
	}
}

func TestWorkloadOfTheEmulator(t *testing.T) {
	for name, c := range map[string]struct {
		load      workload.Workload
		hostClock bool
		unchecked bool
	}{
		"one CPU":  {workload.Workload{Name: "x", CPUs: 1, Check: "true"}, false, false},
		"several":  {workload.Workload{Name: "x", CPUs: 2, Check: "true"}, true, false},
		"no check": {workload.Workload{Name: "x", CPUs: 1, Check: "\n"}, false, true},
	} {
		if got := (Emulator{Load: c.load}).Workload(); got.HostClock != c.hostClock || got.Unchecked != c.unchecked {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A kernel that is better than stock and no better than what jobs get today.
func TestCurrentKernel(t *testing.T) {
	w := newWorld(t, nil)
	w.cost["today"] = 1210
	w.pipe.Current = t.TempDir()
	if err := kernel(w.pipe.Current, "6.1-today", "today\n", build.Manifest{}); err != nil {
		t.Fatal(err)
	}
	candidate, worked, err := w.build()
	if err != nil || !strings.Contains(worked, "measure today test") || candidate.Outcome != kb.OutcomeNoBenefit {
		t.Errorf("worked on %s: %+v, %v", worked, candidate, err)
	}
}

// A kernel that won is what jobs get from then on, and cannot beat itself.
func TestBuildOfTheCurrentKernel(t *testing.T) {
	w := newWorld(t, nil)
	won, _, err := w.build()
	if err != nil || !won.Benefit() {
		t.Fatalf("%+v, %v", won, err)
	}
	w.pipe.Current = won.Kernel
	again, worked, err := w.build()
	if err != nil || worked != "measure optimised test" || !again.Benefit() || again.Published != "fake@1" || again.Report != won.Report || !reflect.DeepEqual(again.Measured, won.Measured) {
		t.Errorf("worked on %q, %+v, %v", worked, again, err)
	}
}

func TestPublication(t *testing.T) {
	w := newWorld(t, nil)
	w.pipe.Publisher = nil
	candidate, _, err := w.build()
	if err != nil || candidate.Published != "" || !candidate.Benefit() {
		t.Fatalf("never: %+v, %v", candidate, err)
	}
	w.pipe.Publisher, w.refuse = w.fake, kb.ErrFailedPrecondition
	if _, worked, err := w.build(); !errors.Is(err, kb.ErrFailedPrecondition) || worked != "" || !strings.HasPrefix(err.Error(), `step "publish": publication: `) {
		t.Errorf("refused: worked on %q, %v", worked, err)
	}
	w.refuse = nil
	if candidate, worked, err := w.build(); err != nil || worked != "" || candidate.Published != "fake@1" {
		t.Errorf("then: worked on %q, %+v, %v", worked, candidate, err)
	}
	got, err := w.pipe.Candidates.Get("fake", candidate.ID)
	if err != nil || got.Published != "fake@1" {
		t.Errorf("%+v, %v", got, err)
	}
	for id, want := range map[string]error{"000000000000": kb.ErrNotFound, "../../x": kb.ErrInvalid} {
		if _, err := w.pipe.Candidates.Get("fake", id); !errors.Is(err, want) {
			t.Errorf("candidate %q: %v", id, err)
		}
	}
}

// Every step fails once; what was done before it is kept.
func TestFailureAtEachStep(t *testing.T) {
	all := strings.Split(everything, ", ")
	for _, step := range slices.Compact(slices.Clone(all)) {
		w := newWorld(t, nil)
		broken := errors.New("it is broken")
		w.fail[step] = broken
		_, first, err := w.build()
		var failed *graph.StepError
		if !errors.Is(err, broken) || !errors.As(err, &failed) || failed.Log == "" {
			t.Errorf("%s: %v", step, err)
		}
		delete(w.fail, step)
		_, second, err := w.build()
		if err != nil {
			t.Errorf("%s, mended: %v", step, err)
		}
		got := slices.Sorted(slices.Values(strings.Split(first+", "+second, ", ")))
		want := slices.Sorted(slices.Values(append(slices.Clone(all), step)))
		if !slices.Equal(got, want) {
			t.Errorf("%s: worked on %v, want %v", step, got, want)
		}
	}
}

// Another source makes all that comes from it anew; another keep-list only what
// comes after slimming, and not even that when slimming comes to the same.
func TestWhatIsDoneAnew(t *testing.T) {
	w := newWorld(t, nil)
	if _, _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	w.source = "6.1-2"
	_, worked, err := w.build()
	// The fakes make the same kernels of the other source.
	if err != nil || !strings.HasPrefix(worked, "compile instrumented, compile optimised, compile plain, compile traced, configure") || strings.Contains(worked, "measure") {
		t.Errorf("worked on %s, %v", worked, err)
	}
	p := w.pipeline(nil)
	p.Slimmer = otherKeep{slimmer{w.fake}}
	w.pipe = p
	if _, worked, err := w.build(); err != nil || worked != "slim" {
		t.Errorf("another keep-list: worked on %s, %v", worked, err)
	}
}

type otherKeep struct{ slimmer }

func (otherKeep) Inputs() (Inputs, error) { return Inputs{"keep": "2"}, nil }

// Two builds of the same thing at once: one of them works on each step.
func TestTwoBuildsAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	pipes := []*Pipeline{w.pipeline(nil), w.pipeline(nil)}
	var building sync.WaitGroup
	for _, p := range pipes {
		p.Publisher = nil
		building.Go(func() {
			if _, err := p.Build(t.Context(), w.runner()); err != nil {
				t.Error(err)
			}
		})
	}
	building.Wait()
	slices.Sort(w.worked)
	if worked := strings.Join(w.worked, ", "); worked != everything {
		t.Errorf("worked on %s", worked)
	}
}

// killedVariable makes this test binary a build that ends by SIGKILL when the
// work of a step is done and before its result is kept.
const killedVariable = "PIPELINE_TEST_KILLED"

func TestMain(m *testing.M) {
	if spec := os.Getenv(killedVariable); spec != "" {
		dir, step, _ := strings.Cut(spec, ",")
		w := &world{fake: newFake(), dir: dir}
		w.after = func(done string) {
			if done == step {
				killSelf()
			}
		}
		if _, err := w.pipeline(nil).Build(context.Background(), w.runner()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestKilledAtEachStep(t *testing.T) {
	all := strings.Split(everything, ", ")
	for _, step := range slices.Compact(slices.Clone(all)) {
		w := newWorld(t, nil)
		victim := exec.Command(os.Args[0])
		victim.Env = append(os.Environ(), killedVariable+"="+w.dir+","+step)
		if err := victim.Run(); err == nil || victim.ProcessState.Exited() {
			t.Fatalf("%s: the build was not killed: %v", step, err)
		}
		status, err := StoreIn(w.dir).Status("fake", "")
		if err != nil || status.State != graph.Killed {
			t.Fatalf("%s: %+v, %v", step, status, err)
		}
		done, killed := 0, 0
		for _, s := range status.Steps {
			switch s.State {
			case graph.Done:
				done++
			case graph.Killed:
				killed++
			}
		}
		candidate, worked, err := w.build()
		if err != nil || !candidate.Benefit() || killed < 1 {
			t.Errorf("%s: %d killed, %v", step, killed, err)
		}
		if kept := len(all) - len(strings.Split(worked, ", ")); kept < done-1 || kept > done+killed {
			t.Errorf("%s: %d steps were done, %d were kept; worked on %s", step, done, kept, worked)
		}
	}
}

func TestUntilAStep(t *testing.T) {
	w := newWorld(t, nil)
	candidate, worked, err := w.build("trace")
	if err != nil || candidate != nil || worked != "compile traced, configure traced, source, trace" {
		t.Errorf("worked on %s, %+v, %v", worked, candidate, err)
	}
	if paths, err := filepath.Glob(filepath.Join(w.dir, "candidates/*")); err != nil || paths != nil {
		t.Errorf("candidates %v, %v", paths, err)
	}
}

// A run that was killed before it wrote its status, or that was to stop
// after a step, has no part in what a report says of the cost.
func TestCostIsOfTheBuild(t *testing.T) {
	w := newWorld(t, nil)
	torn := filepath.Join(w.dir, "graph/builds/fake/99991231T000000.000Z-ffffff")
	if err := os.MkdirAll(torn, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.build("source"); err != nil {
		t.Fatal(err)
	}
	if cost, err := w.pipe.cost(); err != nil || len(cost) != 23 || cost[len(cost)-1].Step != StepPublish {
		t.Errorf("%d steps: %+v, %v", len(cost), cost, err)
	}
}

// whole is the fake with all of a manifest.
type whole struct{ Kernels }

func (f whole) Compile(ctx context.Context, v build.Variant, config, profile string, w *graph.Work) error {
	text, err := os.ReadFile(config)
	if err = errors.Join(err, f.Kernels.Compile(ctx, v, config, profile, w)); err != nil {
		return err
	}
	manifest, err := build.ReadManifest(w.Dir)
	manifest.Config = build.File{Name: build.ConfigFile, Digest: digest(string(text)), Size: int64(len(text))}
	return errors.Join(err, manifest.Write(w.Dir))
}

func TestBuildGiven(t *testing.T) {
	w := newWorld(t, nil)
	w.pipe.Kernels = whole{w.pipe.Kernels}
	w.pipe.Recipe.Optimisation, w.pipe.Recipe.Slimming = "", build.SlimmingTrace
	out := t.TempDir()
	if _, err := w.pipe.BuildGiven(t.Context(), w.runner(), "", out, t.Logf); !errors.Is(err, ErrNeedsRun) {
		t.Errorf("slimmed: %v", err)
	}
	w.pipe.Recipe.Slimming = ""
	made, err := w.pipe.BuildGiven(t.Context(), w.runner(), "/nowhere", out, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := build.ReadManifest(out); err != nil || read.BuildID != made.BuildID || read.Verify(out) != nil {
		t.Errorf("%+v, %v, want %+v", read, err, made)
	}
	// What is damaged is not handed on, be it an earlier version's.
	if err := os.WriteFile(filepath.Join(out, build.ImageFile), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pipe.BuildGiven(t.Context(), w.runner(), out, t.TempDir(), t.Logf); err == nil || !strings.Contains(err.Error(), "damaged in the cache") {
		t.Errorf("damaged: %v", err)
	}
	w.pipe.Recipe.Optimisation = build.OptimisePGO
	if _, err := w.pipe.BuildGiven(t.Context(), w.runner(), "", out, t.Logf); !errors.Is(err, ErrNeedsRun) {
		t.Errorf("profiled: %v", err)
	}
}

func TestMeasuredIsStrict(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, MeasuredFile), []byte(`{"sample":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadMeasured(dir, Workload{}); err == nil || !strings.Contains(err.Error(), `unknown field "sample"`) {
		t.Error(err)
	}
	var syntax *json.SyntaxError
	if err := os.WriteFile(filepath.Join(dir, MeasuredFile), []byte(`{`+"\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadMeasured(dir, Workload{}); !errors.As(err, &syntax) {
		t.Error(err)
	}
}

// In a report each kernel has its name: the candidate cannot have another one's.
func TestNamesOfOtherKernels(t *testing.T) {
	for name, optimisation := range map[string]build.Optimisation{"stock": "", "current": "", "slim": build.OptimisePGO} {
		p := newWorld(t, func(r *build.Recipe) { r.Name, r.Optimisation = name, optimisation }).pipe
		if _, err := p.Graph(); err == nil || !strings.Contains(err.Error(), "another kernel's name in its report") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := newWorld(t, func(r *build.Recipe) { r.Name, r.Optimisation = "slim", "" }).pipe.Graph(); err != nil {
		t.Errorf("the slim kernel itself: %v", err)
	}
}
