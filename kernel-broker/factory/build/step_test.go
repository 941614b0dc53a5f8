// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
)

// profiled turns the fake's recipe into one with a profile.
func (f *fakeFactory) profiled(more string) Plan {
	f.t.Helper()
	path := filepath.Join(f.dir, "catalog/kernels/fake.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	write(f.t, path, string(text)+"optimisation: pgo\nworkload: writes\n"+more)
	return f.plan()
}

func (f *fakeFactory) plan() Plan {
	f.t.Helper()
	plan, err := f.builder().Plan(f.t.Context(), "fake")
	if err != nil {
		f.t.Fatal(err)
	}
	return plan
}

// configured is the path of a configuration for the variant.
func (f *fakeFactory) configured(plan Plan, in ConfigureInput) string {
	f.t.Helper()
	out := f.t.TempDir()
	if err := f.builder().Configure(f.t.Context(), plan, in, out); err != nil {
		f.t.Fatal(err)
	}
	return filepath.Join(out, ConfigFile)
}

// profile is a folder with counters for objects.
func (f *fakeFactory) profile(counts map[string]int64) string {
	f.t.Helper()
	profile := pgo.Profile{Files: map[string]pgo.File{}, Runs: 1}
	for object, count := range counts {
		profile.Files[object] = pgo.File{Version: 0x4232322a, Functions: []pgo.Function{
			{Ident: 1, Counters: []pgo.Counter{{Values: []int64{count}}}},
		}}
	}
	dir := filepath.Join(f.t.TempDir(), "profile")
	if err := profile.WriteFor(dir); err != nil {
		f.t.Fatal(err)
	}
	return dir
}

func (f *fakeFactory) flags() string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.switches, "flags"))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// compiled are the objects that a log says were compiled.
func compiled(log *bytes.Buffer) []string {
	var objects []string
	for line := range strings.Lines(log.String()) {
		if object, ok := strings.CutPrefix(line, "  CC      "); ok && !strings.HasPrefix(object, "one.o") {
			objects = append(objects, strings.TrimSpace(object))
		}
	}
	log.Reset()
	return objects
}

func TestStepsOfAProfiledKernel(t *testing.T) {
	f := newFakeFactory(t)
	plan, builder := f.profiled(""), f.builder()
	counting := f.configured(plan, ConfigureInput{Variant: Instrumented})
	if config, err := kconfig.ReadConfig(counting); err != nil || config["GCOV_PROFILE_ALL"] != "y" || config["WANTED"] != "y" {
		t.Errorf("the configuration that counts: %v, %v", config, err)
	}
	final := f.configured(plan, ConfigureInput{Variant: Optimised})
	if config, err := kconfig.ReadConfig(final); err != nil || config["GCOV_KERNEL"] != "" || config["WANTED"] != "y" {
		t.Errorf("the configuration to optimise: %v, %v", config, err)
	}
	out := t.TempDir()
	manifest, err := builder.Compile(t.Context(), plan, CompileInput{Variant: Instrumented, Config: counting}, Watch{}, out)
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Variant != Instrumented || f.flags() != seed+" -O3" || manifest.Profile != nil {
		t.Errorf("flags %q, manifest %+v", f.flags(), manifest)
	}
	var log bytes.Buffer
	last := 0
	watch := Watch{Log: &log, Units: func(done, _ int) { last = done }}
	optimise := func(counts map[string]int64) Manifest {
		t.Helper()
		in := CompileInput{Variant: Optimised, Config: final, Profile: f.profile(counts)}
		manifest, err := builder.Compile(t.Context(), plan, in, watch, out)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ReadManifest(out)
		if err != nil || read.Profile == nil || read.Profile.Digest != manifest.Profile.Digest || read.Workload != "writes" {
			t.Errorf("the manifest on the disk is %+v, %v", read.Profile, err)
		}
		return manifest
	}
	f.set("complain", true)
	first := optimise(map[string]int64{"fs/a": 5, "mm/b": 0})
	if got := compiled(&log); !slices.Equal(got, []string{"fs/a.o", "mm/b.o"}) || last == 0 {
		t.Errorf("the first build compiled %v, %d units", got, last)
	}
	if !strings.Contains(f.flags(), "-fprofile-use=") || first.Flags[0] != "-fprofile-use=OBJECTS.profile" {
		t.Errorf("flags %q, in the manifest %v", f.flags(), first.Flags)
	}
	f.set("complain", false)
	same := optimise(map[string]int64{"fs/a": 5, "mm/b": 0})
	if got := compiled(&log); len(got) != 0 || same.Profile.Digest != first.Profile.Digest {
		t.Errorf("the same profile again compiled %v", got)
	}
	other := optimise(map[string]int64{"fs/a": 6, "mm/b": 0})
	if got := compiled(&log); !slices.Equal(got, []string{"fs/a.o"}) || other.Profile.Digest == first.Profile.Digest {
		t.Errorf("another profile compiled %v", got)
	}
	// What was said of the object that was not compiled again still counts.
	if got := other.Profile.Complaints.Mismatched; !slices.Equal(got, []string{"mm/b.o: f"}) {
		t.Errorf("complaints %v", got)
	}
	// Unless it is of another kernel, whose objects are in the same folder.
	f.set("without-b", true)
	if got := optimise(map[string]int64{"fs/a": 6, "mm/b": 0}).Profile.Complaints.Mismatched; len(got) != 0 {
		t.Errorf("complaints about a kernel without mm/b.o: %v", got)
	}
	f.set("without-b", false)
	if got := optimise(map[string]int64{"fs/a": 6, "mm/b": 0}).Profile.Complaints.Mismatched; !slices.Equal(got, []string{"mm/b.o: f"}) {
		t.Errorf("complaints about the kernel with it again: %v", got)
	}
}

func TestProfileInVain(t *testing.T) {
	f := newFakeFactory(t)
	plan := f.profiled("")
	in := CompileInput{
		Variant: Optimised, Config: f.configured(plan, ConfigureInput{Variant: Optimised}),
		Profile: f.profile(map[string]int64{"fs/a": 5}),
	}
	compile := func() (Manifest, error) {
		return f.builder().Compile(t.Context(), plan, in, Watch{}, t.TempDir())
	}
	manifest, err := compile()
	if err != nil || *manifest.Sections != (pgo.Sections{Text: 900, Unlikely: 2500, Hot: 600, Others: 50}) {
		t.Fatalf("sections %+v, %v", manifest.Sections, err)
	}
	if err := manifest.Fits(pgo.Sections{Text: 1000, Unlikely: 1500}); !errors.Is(err, pgo.ErrUnfit) || !strings.Contains(err.Error(), "62.5 % of the text and was 60.0 %") {
		t.Errorf("hardly more than without: %v", err)
	}
	f.set("ignore", true)
	if _, err := compile(); !errors.Is(err, pgo.ErrUnfit) || !strings.Contains(err.Error(), "the compiler ignored the profile") {
		t.Errorf("ignored: %v", err)
	}
}

func TestTracedKernelHasAMap(t *testing.T) {
	f := newFakeFactory(t)
	plan := f.plan()
	for variant, want := range map[Variant]bool{Traced: true, Plain: false} {
		out := t.TempDir()
		in := CompileInput{Variant: variant, Config: f.configured(plan, ConfigureInput{Variant: variant})}
		if _, err := f.builder().Compile(t.Context(), plan, in, Watch{}, out); err != nil {
			t.Fatal(err)
		}
		if exists(filepath.Join(out, LinkMapFile)) != want {
			t.Errorf("%s: a link map is there or not: want %v", variant, want)
		}
	}
}

func TestObjectThatBreaksWithItsProfile(t *testing.T) {
	f := newFakeFactory(t)
	plan := f.profiled("")
	in := CompileInput{
		Variant: Optimised, Config: f.configured(plan, ConfigureInput{Variant: Optimised}),
		Profile: f.profile(map[string]int64{"fs/a": 5}),
	}
	f.set("break", true)
	manifest, err := f.builder().Compile(t.Context(), plan, in, Watch{}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := Exclusion{"fs/a.o", "does not compile with its profile: 'asm' operand has impossible constraints"}
	if !slices.Equal(manifest.Profile.Excluded, []Exclusion{want}) {
		t.Errorf("excluded %+v", manifest.Profile.Excluded)
	}
	// A failure that has nothing to do with the profile stays one.
	f.set("break", false)
	f.set("fail", true)
	var failure *BuildError
	if _, err := f.builder().Compile(t.Context(), plan, in, Watch{}, t.TempDir()); !errors.As(err, &failure) {
		t.Errorf("error is %v", err)
	}
}

func TestExclusionsOfTheRecipe(t *testing.T) {
	f := newFakeFactory(t)
	plan := f.profiled("exclude: [{object: fs/a.o, reason: does not boot}]\n")
	in := CompileInput{
		Variant: Optimised, Config: f.configured(plan, ConfigureInput{Variant: Optimised}),
		Profile: f.profile(map[string]int64{"fs/a": 5, "mm/b": 7}),
	}
	manifest, err := f.builder().Compile(t.Context(), plan, in, Watch{}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Profile.Objects != 1 || len(manifest.Profile.Excluded) != 1 {
		t.Errorf("%+v", manifest.Profile)
	}
	in.Profile = f.profile(map[string]int64{"mm/b": 7})
	_, err = f.builder().Compile(t.Context(), plan, in, Watch{}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), `"fs/a.o" is excluded from the profile, which does not have it`) {
		t.Errorf("error is %v", err)
	}
}

func TestSlimConfiguration(t *testing.T) {
	f := newFakeFactory(t)
	f.fragment("base", "# Reason.\nCONFIG_DROPPED=y\nCONFIG_WANTED=y\n")
	plan := f.plan()
	slim := filepath.Join(t.TempDir(), "slim.config")
	write(t, slim, "# Nothing used it.\n# CONFIG_OTHER is not set\n")
	config := f.configured(plan, ConfigureInput{Variant: Plain, Slim: slim})
	text, err := os.ReadFile(filepath.Join(filepath.Dir(config), droppedFile))
	if err != nil || !strings.Contains(string(text), `"DROPPED"`) {
		t.Errorf("what went with it: %s, %v", text, err)
	}
	write(t, slim, "# It is needed.\nCONFIG_DROPPED=y\n")
	var lost *kconfig.LostError
	err = f.builder().Configure(t.Context(), plan, ConfigureInput{Variant: Plain, Slim: slim}, t.TempDir())
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "slim.config:2: CONFIG_DROPPED=y") {
		t.Errorf("what slimming asked for is lost: %v", err)
	}
}

func TestCompileRefuses(t *testing.T) {
	f := newFakeFactory(t)
	plan := f.plan()
	config := f.configured(plan, ConfigureInput{Variant: Plain})
	compile := func(in CompileInput) error {
		_, err := f.builder().Compile(t.Context(), plan, in, Watch{}, t.TempDir())
		return err
	}
	if err := compile(CompileInput{Variant: Optimised, Config: config}); err == nil || !strings.Contains(err.Error(), "needs it") {
		t.Errorf("optimised without a profile: %v", err)
	}
	in := CompileInput{Variant: Optimised, Config: config, Profile: f.profile(map[string]int64{"fs/a": 1})}
	if err := compile(in); err == nil || !strings.Contains(err.Error(), "optimisation O2 takes no profile") {
		t.Errorf("a profile for O2: %v", err)
	}
	write(t, config, "CONFIG_DROPPED=y\n")
	if err := compile(CompileInput{Variant: Plain, Config: config}); err == nil || !strings.Contains(err.Error(), "kconfig changes it") {
		t.Errorf("a foreign configuration: %v", err)
	}
}

// Everything that makes another kernel is among the inputs.
func TestInputs(t *testing.T) {
	f := newFakeFactory(t)
	seen := map[string]string{}
	note := func(what string, inputs map[string]string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		key := ""
		for _, name := range slices.Sorted(maps.Keys(inputs)) {
			key += name + "=" + inputs[name] + "\n"
		}
		if other, twice := seen[key]; twice {
			t.Errorf("%s and %s have the same inputs:\n%s", what, other, key)
		}
		seen[key] = what
	}
	plan := f.plan()
	config := f.configured(plan, ConfigureInput{Variant: Plain})
	compile := func(what string, plan Plan, in CompileInput) {
		t.Helper()
		inputs, err := in.Inputs(plan)
		note(what, inputs, err)
	}
	compile("plain", plan, CompileInput{Variant: Plain, Config: config})
	compile("counting", plan, CompileInput{Variant: Instrumented, Config: config})
	compile("traced", plan, CompileInput{Variant: Traced, Config: config})
	lined := plan
	lined.Recipe.Optimisation = OptimiseAutoFDO
	compile("plain with lines", lined, CompileInput{Variant: Plain, Config: config})
	compile("traced with lines", lined, CompileInput{Variant: Traced, Config: config})
	one, two := f.profile(map[string]int64{"fs/a": 1}), f.profile(map[string]int64{"fs/a": 2})
	profiled := f.profiled("")
	compile("first profile", profiled, CompileInput{Variant: Optimised, Config: config, Profile: one})
	compile("second profile", profiled, CompileInput{Variant: Optimised, Config: config, Profile: two})
	safe := profiled
	safe.Recipe.Optimisation = OptimisePGOSafe
	compile("safe", safe, CompileInput{Variant: Optimised, Config: config, Profile: two})
	excluding := profiled
	excluding.Recipe.Exclude = []Exclusion{{"fs/a.o", "no boot"}}
	compile("exclusion", excluding, CompileInput{Variant: Optimised, Config: config, Profile: two})
	newer := plan
	newer.Source.Version = "9.9-2"
	compile("newer source", newer, CompileInput{Variant: Plain, Config: config})
	patched := plan
	patched.Source.Patches = []Patch{{Name: "x.patch", Digest: "sha256:1", Upstream: "no"}}
	compile("patched source", patched, CompileInput{Variant: Plain, Config: config})

	configure := func(what string, plan Plan, in ConfigureInput) {
		t.Helper()
		inputs, err := in.Inputs(plan)
		note(what, inputs, err)
	}
	slim := filepath.Join(t.TempDir(), "slim.config")
	write(t, slim, "# Reason.\nCONFIG_A=y\n")
	configure("config", plan, ConfigureInput{Variant: Plain})
	configure("config to count", plan, ConfigureInput{Variant: Instrumented})
	configure("config slim", plan, ConfigureInput{Variant: Plain, Slim: slim})
	write(t, slim, "# Reason.\nCONFIG_B=y\n")
	configure("config slimmer", plan, ConfigureInput{Variant: Plain, Slim: slim})
}

// A whole profile goes with -O3, in the kernel that counts as well; branch
// probabilities alone change no level, and the two kernels that count are kept
// apart.
func TestLevelOfProfiledKernels(t *testing.T) {
	plan := Plan{Recipe: Recipe{Name: "x", Optimisation: OptimisePGO}, Compiler: Compiler{Name: "gcc-12"}}
	safe := plan
	safe.Recipe.Optimisation = OptimisePGOSafe
	for _, c := range []struct {
		plan    Plan
		variant Variant
		want    bool
	}{
		{plan, Instrumented, true}, {plan, Optimised, true}, {plan, Plain, false}, {plan, Traced, false},
		{safe, Instrumented, false}, {safe, Optimised, false},
	} {
		flags, err := c.plan.flags(c.variant, "/obj")
		if err != nil {
			t.Fatal(err)
		}
		inputs, err := CompileInput{Variant: c.variant}.Inputs(c.plan)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(flags, "-O3") != c.want || (inputs["level"] == "-O3") != c.want {
			t.Errorf("%s, %s: flags %q, level %q", c.plan.Recipe.Optimisation, c.variant, flags, inputs["level"])
		}
	}
	counting, err := plan.flavour(Instrumented)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := safe.flavour(Instrumented); err != nil || other == counting {
		t.Errorf("both kernels that count are made in %q, %v", other, err)
	}
}
