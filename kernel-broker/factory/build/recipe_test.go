// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

const goodRecipe = `name: x
source:
  debian: linux-source-6.1
base: tinyconfig
fragments: [base]
localversion: -x
compiler: gcc-12
`

func TestParseRecipe(t *testing.T) {
	recipe, err := ParseRecipe("x.yaml", []byte(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	if recipe.Source.Debian != "linux-source-6.1" || recipe.Fragments[0] != "base" {
		t.Errorf("got %+v", recipe)
	}
}

// fullRecipe has every key.
const fullRecipe = `name: x
source: {tarball: "https://example.org/linux.tar.xz", digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"}
base: tinyconfig
fragments: [base]
localversion: -x
compiler: gcc-12
optimisation: pgo-safe
slimming: trace
workload: io-write8
keep: [PCI, ACPI]
patches:
  - {file: write.patch, upstream: "in 6.4 as 0123abc"}
exclude:
  - {object: arch/x86/kernel/head64.o, reason: does not boot}
overrides: [cores]
`

func TestParseFullRecipe(t *testing.T) {
	recipe, err := ParseRecipe("x.yaml", []byte(fullRecipe))
	if err != nil {
		t.Fatal(err)
	}
	if recipe.Optimisation != OptimisePGOSafe || recipe.Slimming != SlimmingTrace || recipe.Patches[0].Upstream == "" ||
		recipe.Exclude[0].Object != "arch/x86/kernel/head64.o" || len(recipe.Keep) != 2 || recipe.Overrides[0] != "cores" {
		t.Errorf("got %+v", recipe)
	}
}

// Keys of before must give the same kernel key as they always did: the JSON
// form of such a recipe has nothing new in it.
func TestNewKeysLeaveOldRecipesAlone(t *testing.T) {
	for _, text := range []string{goodRecipe, goodRecipe + "optimisation: O2\nslimming: none\n"} {
		recipe, err := ParseRecipe("x.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		form, err := json.Marshal(recipe)
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"Name":"x","Description":"","Source":{"Debian":"linux-source-6.1"},"Base":"tinyconfig",` +
			`"Fragments":["base"],"LocalVersion":"-x","Compiler":"gcc-12"}`
		if string(form) != want {
			t.Errorf("the form is\n%s\nwant\n%s", form, want)
		}
	}
}

func TestParseRecipeIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown key":      {"base: tiny", "bass: 1\nbase: tiny", `x.yaml: line 4: unknown key "bass"`},
		"unknown inner":    {"debian:", "debain:", `line 3: unknown key "debain"`},
		"key twice":        {"base:", "name: y\nbase:", `line 4: mapping key "name" already defined`},
		"wrong type":       {"[base]", "base", "line 5: cannot unmarshal"},
		"no fragments":     {"[base]", "[]", `x.yaml: line 5: key "fragments": no fragment`},
		"fragment twice":   {"[base]", "[base,\n base]", `line 6: key "fragments": "base" is not a fragment's name or is there twice`},
		"fragment a path":  {"[base]", "[../x]", `"../x" is not a fragment's name`},
		"other base":       {"tinyconfig", "defconfig", `line 4: key "base": value "defconfig"`},
		"other compiler":   {"gcc-12", "cc; rm", `line 7: key "compiler"`},
		"local version":    {"-x\n", "-X y\n", `key "localversion"`},
		"source elsewhere": {"linux-source-6.1", "bash", `line 3: key "source: debian"`},
		"two documents":    {"gcc-12\n", "gcc-12\n---\nname: y\n", "more than one document"},
		"empty":            {goodRecipe, "", "empty file"},
		"no yaml":          {goodRecipe, "a: [", "x.yaml: "},
	} {
		t.Run(name, func(t *testing.T) { mistaken(t, goodRecipe, c.from, c.to, c.want) })
	}
}

func TestParseFullRecipeIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"optimisation":         {"pgo-safe", "O3", `line 7: key "optimisation": value "O3" is not allowed`},
		"slimming":             {"trace", "hard", `line 8: key "slimming": value "hard" is not allowed`},
		"workload":             {"io-write8", "../x", `line 9: key "workload"`},
		"keep":                 {"PCI", "CONFIG_PCI", `line 10: key "keep": "CONFIG_PCI" is not an option without CONFIG_`},
		"keep twice":           {"ACPI", "PCI", `line 10: key "keep": "PCI"`},
		"patch a path":         {"write.patch", "../write.patch", `line 12: key "patches: file"`},
		"patch of no fate":     {`"in 6.4 as 0123abc"`, `" "`, `line 12: key "patches: upstream": write.patch does not say`},
		"unknown in a patch":   {"upstream", "status", `line 12: unknown key "status"`},
		"object elsewhere":     {"arch/x86/kernel/head64.o", "/etc/x.o", `line 14: key "exclude: object"`},
		"object no object":     {"arch/x86/kernel/head64.o", "fs/x.c", `line 14: key "exclude: object"`},
		"a flag twice":         {"compiler: gcc-12", "compiler: gcc-12\nflags: [-fno-tracer, -fno-tracer]", `key "flags": "-fno-tracer" is not a flag of an optimisation (-fno-tracer) or is there twice`},
		"no flag":              {"compiler: gcc-12", "compiler: gcc-12\nflags: [-O0]", `key "flags": "-O0" is not a flag`},
		"the factory's flag":   {"compiler: gcc-12", "compiler: gcc-12\nflags: [-fprofile-arcs]", `key "flags": -fprofile-arcs is the factory's own`},
		"no reason":            {"does not boot", `""`, `line 14: key "exclude: reason": arch/x86/kernel/head64.o is excluded without`},
		"profile for clang":    {"gcc-12", "clang-19", `line 7: key "optimisation": pgo-safe needs gcc's profiles`},
		"profile of nothing":   {"workload: io-write8\n", "", `line 7: key "optimisation": pgo-safe needs a workload`},
		"tarball, no digest":   {`, digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"`, "", `key "source: digest": a tarball needs its digest`},
		"git without commit":   {"tarball:", "git:", `key "source: commit": a repository needs a commit`},
		"two sources":          {"tarball:", "debian: linux-source-6.1, tarball:", `line 2: key "source": say one of debian, tarball and git, not 2`},
		"no source":            {"tarball:", "commit:", `key "source": say one of debian, tarball and git, not 0`},
		"an option":            {"https://example.org", "--to-command=x", `key "source": begins with a dash`},
		"kept from nothing":    {"slimming: trace\n", "", `key "keep": there is no slimming`},
		"override a path":      {"[cores]", "[../x]", `line 15: key "overrides": "../x" is not a fragment's name`},
		"override a fragment":  {"[cores]", "[base]", `line 15: key "overrides": "base"`},
		"override twice":       {"[cores]", "[a, a]", `line 15: key "overrides": "a" is not a fragment's name or is there twice`},
		"excluded from no pgo": {"pgo-safe", "Os", `key "exclude": there is no object's profile`},
		"base of a tarball":    {"tinyconfig", "distribution", `key "base": distribution needs a source of the distribution (debian: linux-source-6.1)`},
		"branches of counters": {"pgo-safe\n", "pgo-safe\nbranches: {probes: true}\n", `line 8: key "branches": pgo-safe takes no branches`},
		"samples for gcc":      {"pgo-safe", "autofdo", `line 7: key "optimisation": autofdo needs clang, and the compiler is gcc-12`},
	} {
		t.Run(name, func(t *testing.T) { mistaken(t, fullRecipe, c.from, c.to, c.want) })
	}
}

func TestBranchesOfARecipe(t *testing.T) {
	recipe := strings.Replace(goodRecipe, "gcc-12\n", "clang-19\noptimisation: autofdo\nworkload: w\nbranches:\n  level: O3\n  llvm:\n    import-hot-multiplier: 10\n", 1)
	mistaken(t, recipe, "O3", "O9", `key "branches: level": value "O9" is not allowed`)
	mistaken(t, recipe, "import-hot-multiplier: 10", "-O9 -x: 1", `key "branches: llvm: -O9 -x": "-O9 -x" is not the name of an option of LLVM's`)
	mistaken(t, recipe, "level:", "levels:", `unknown key "levels"`)
	parsed, err := ParseRecipe("x.yaml", []byte(recipe))
	if err != nil {
		t.Fatal(err)
	}
	if s := parsed.Sampling(); !s.CallTargets || !s.AtLink || s.Probes || s.Level != "O3" || s.LLVM["import-hot-multiplier"] != 10 {
		t.Errorf("%+v", s)
	}
	off := false
	parsed.Branches = &Branches{CallTargets: &off, AtLink: &off, Probes: true}
	if s := parsed.Sampling(); s.CallTargets || s.AtLink || !s.Probes {
		t.Errorf("turned off: %+v", s)
	}
}

// The linker is told of the profile only where it compiles.
func TestLinkerFlags(t *testing.T) {
	for name, c := range map[string]struct {
		option, profile string
		used            bool
	}{
		"thin":              {"LTO_CLANG_THIN", "/objects/p.prof", true},
		"without a profile": {"LTO_CLANG_THIN", "", false},
		"no LTO":            {"SMP", "/objects/p.prof", false},
	} {
		merged, err := kconfig.Merge([]kconfig.Fragment{{Name: "x", Options: []kconfig.Option{{Symbol: c.option, Value: "y"}}}})
		if err != nil {
			t.Fatal(err)
		}
		at := site{plan: Plan{Recipe: Recipe{Optimisation: OptimiseAutoFDO}, Merged: merged}, sampled: c.profile}
		if got := at.linkerFlags(); len(got) > 0 != c.used || c.used && got[0] != "--lto-sample-profile="+c.profile {
			t.Errorf("%s: %q", name, got)
		}
		for variant, kept := range map[Variant]bool{Plain: c.option == "LTO_CLANG_THIN", Traced: false, Optimised: false} {
			at := at
			at.variant = variant
			if got := at.linkedBefore(); len(got) > 0 != kept {
				t.Errorf("%s, %s: what was linked before: %q", name, variant, got)
			}
		}
		// A trace tells objects apart only where nothing is moved between them.
		off := slices.ContainsFunc(at.plan.overlays(Traced), func(f kconfig.Fragment) bool {
			return slices.ContainsFunc(f.Options, func(o kconfig.Option) bool { return o.Symbol == "LTO_CLANG_THIN" && o.Value == kconfig.Off })
		})
		if off != (c.option == "LTO_CLANG_THIN") {
			t.Errorf("%s: traced without it: %t", name, off)
		}
	}
}

// mistaken puts a mistake into a recipe and wants it named.
func mistaken(t *testing.T, recipe, from, to, want string) {
	t.Helper()
	text := strings.Replace(recipe, from, to, 1)
	if text == recipe {
		t.Fatalf("%q is not in the recipe", from)
	}
	_, err := ParseRecipe("x.yaml", []byte(text))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q in it", err, want)
	}
}

func FuzzParseRecipe(f *testing.F) {
	f.Add(goodRecipe)
	f.Add(fullRecipe)
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		recipe, err := ParseRecipe("x.yaml", []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x.yaml: ") {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		if recipe.validate() != nil {
			t.Errorf("accepted %+v", recipe)
		}
		// Names of the catalog's files lead to files of the catalog.
		names := append(slices.Concat(recipe.Fragments, recipe.Overrides), recipe.Name)
		for _, patch := range recipe.Patches {
			names = append(names, patch.File)
		}
		for _, name := range names {
			if filepath.Join("/fragments", name) != "/fragments/"+name {
				t.Errorf("%q is a file of %q", name, text)
			}
		}
	})
}

// The repository's own catalog: every recipe reads, and its fragments agree.
func TestOwnCatalog(t *testing.T) {
	const catalog = "../../../catalog"
	recipes, err := filepath.Glob(filepath.Join(catalog, "kernels", "*.yaml"))
	if err != nil || len(recipes) < 2 {
		t.Fatalf("recipes %v, %v", recipes, err)
	}
	used := map[string]bool{}
	for _, path := range recipes {
		recipe, err := LoadRecipe(catalog, strings.TrimSuffix(filepath.Base(path), ".yaml"))
		if err != nil {
			t.Error(err)
			continue
		}
		fragments, err := recipe.ReadFragments(catalog, recipe.Fragments)
		if err != nil {
			t.Error(err)
			continue
		}
		overrides, err := recipe.ReadFragments(catalog, recipe.Overrides)
		if err != nil {
			t.Error(err)
			continue
		}
		merged, err := kconfig.Merge(fragments)
		if err == nil {
			merged, err = merged.Overlaid(overrides...)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, fragment := range slices.Concat(fragments, overrides) {
			used[fragment.Name] = true
		}
		checkModules(t, catalog, recipe, merged)
	}
	files, err := filepath.Glob(filepath.Join(catalog, "fragments", "*.config"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".config")
		if !used[name] && !strings.HasPrefix(name, "tune-") { // package tune looks at those
			t.Errorf("no recipe uses the fragment %s", name)
		}
	}
}

// An image whose digest is known does not change after its boot: nobody loads a
// module into it. The option is there only for what else hangs on it, in kernels
// with the fragment profiling, which know no key that one could be signed with. Such
// a kernel is for looking at jobs of another one, and so is that with the fragment.
func checkModules(t *testing.T, catalog string, recipe Recipe, merged kconfig.Merged) {
	t.Helper()
	profiling, others := slices.Contains(recipe.Fragments, "profiling"), len(recipe.Modules) > 0
	if merged.Asks("MODULES") != (profiling || others) {
		t.Errorf("recipe %s: modules are for profiling, and for modules of others", recipe.Name)
	}
	if others && !merged.Asks("MODULE_SIG_FORCE") {
		t.Errorf("recipe %s: modules of anybody could be loaded", recipe.Name)
	}
	if !profiling {
		return
	}
	if !merged.Asks("MODULE_SIG_FORCE") || !slices.ContainsFunc(merged.Options, func(o kconfig.Option) bool {
		return o.Symbol == "MODULE_SIG_KEY" && o.Value == `""`
	}) {
		t.Errorf("recipe %s: modules could be loaded", recipe.Name)
	}
	plain, beside := strings.CutSuffix(recipe.Name, "-profiling")
	if !beside {
		return
	}
	other, err := LoadRecipe(catalog, plain)
	if err != nil {
		t.Fatal(err)
	}
	other.Name, other.Description, other.LocalVersion = recipe.Name, recipe.Description, recipe.LocalVersion
	// It looks at what a run uses, and so is not made of what a run used.
	other = other.Quick()
	other.Optimisation, other.Slimming, other.Workload, other.Training = "", "", "", ""
	other.Fragments = append(other.Fragments, "profiling")
	if !reflect.DeepEqual(recipe, other) {
		t.Errorf("recipe %s is %+v, and not %s with the fragment profiling: %+v", recipe.Name, recipe, plain, other)
	}
}
