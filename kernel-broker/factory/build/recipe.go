// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// Recipe says how a kernel is made: catalog/kernels/<name>.yaml. Keys that came
// later are left out of the JSON form when they have their default, since that
// form is part of every kernel's key in the cache.
type Recipe struct {
	Name         string       `yaml:"name"`
	Description  string       `yaml:"description"`
	Source       RecipeSource `yaml:"source"`
	Base         string       `yaml:"base"`
	Fragments    []string     `yaml:"fragments"`
	LocalVersion string       `yaml:"localversion"`
	Compiler     string       `yaml:"compiler"`

	// Overrides are fragments whose options replace those of Fragments, such
	// as the member of a choice.
	Overrides []string `yaml:"overrides" json:",omitempty"`
	// Optimisation is O2 when it is empty, Slimming is none.
	Optimisation Optimisation `yaml:"optimisation" json:",omitempty"`
	Slimming     string       `yaml:"slimming" json:",omitempty"`
	// Workload is what the kernel is made for, in catalog/workloads.
	Workload string `yaml:"workload" json:",omitempty"`
	// Training is the digest of catalog/training/<name>.tar.zst: what runs of the
	// workload said. Without it the runs are made.
	Training string `yaml:"training" json:",omitempty"`
	// Keep are the options that slimming must leave as they are.
	Keep    []string      `yaml:"keep" json:",omitempty"`
	Patches []RecipePatch `yaml:"patches" json:",omitempty"`
	Exclude []Exclusion   `yaml:"exclude" json:",omitempty"`
	// Flags are the compiler's, after all others.
	Flags []string `yaml:"flags" json:",omitempty"`
	// Branches say how optimisation autofdo uses them.
	Branches *Branches `yaml:"branches" json:",omitempty"`
	// Modules of others that are built with the kernel and loaded by each node that boots it.
	Modules []ModulePackage `yaml:"modules" json:",omitempty"`
}

// RecipePatch is a change to the source, in catalog/patches, and what became of
// it in Linux itself.
type RecipePatch struct {
	File     string `yaml:"file"`
	Upstream string `yaml:"upstream"`
}

// Exclusion is an object that is compiled without a profile, and why.
type Exclusion struct {
	Object string `yaml:"object" json:"object"`
	Reason string `yaml:"reason" json:"reason"`
}

// Branches are choices of optimisation autofdo. Benches turn off one by one what a kernel gets without being asked.
type Branches struct {
	// CallTargets of indirect calls are in the profile, and what the profile says is used at the link, too. Nil is true.
	CallTargets *bool `yaml:"call_targets" json:",omitempty"`
	AtLink      *bool `yaml:"at_link" json:",omitempty"`
	// Probes take the place of lines: the compiler marks blocks, and the marks outlast its passes.
	Probes bool `yaml:"probes" json:",omitempty"`
	// Level is the optimised kernel's, O2 or O3.
	Level string `yaml:"level" json:",omitempty"`
	// LLVM has options of the optimiser and their values, for compiler and linker.
	LLVM map[string]int `yaml:"llvm" json:",omitempty"`
}

// Optimisation selects the compiler's flags.
type Optimisation string

// The optimisations; the last three take a profile.
const (
	OptimiseO2      Optimisation = "O2"
	OptimiseSize    Optimisation = "Os"
	OptimisePGO     Optimisation = "pgo"
	OptimisePGOSafe Optimisation = "pgo-safe"
	OptimiseAutoFDO Optimisation = "autofdo"
)

// Profiled reports whether such a kernel takes a profile.
func (o Optimisation) Profiled() bool { return o.Counted() || o == OptimiseAutoFDO }

// Counted reports whether its profile is what an instrumented kernel counted.
func (o Optimisation) Counted() bool { return o == OptimisePGO || o == OptimisePGOSafe }

// NeedsRun reports whether the kernel is made of what runs of its workload say.
func (r Recipe) NeedsRun() bool { return r.Optimisation.Profiled() || r.Slimming == SlimmingTrace }

// Values of the key slimming.
const (
	SlimmingNone  = "none"
	SlimmingTrace = "trace"
)

// LoadRecipe reads a kernel's recipe from a catalog folder.
func LoadRecipe(catalog, name string) (Recipe, error) {
	if !recipeName.MatchString(name) {
		return Recipe{}, fmt.Errorf("kernel name %q: use lower-case letters, digits, dot, dash and underscore", name)
	}
	path := filepath.Join(catalog, "kernels", name+".yaml")
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Recipe{}, fmt.Errorf("kernel %q: no such recipe (looked for %s)", name, path)
	}
	if err != nil {
		return Recipe{}, fmt.Errorf("kernel %q: %w", name, err)
	}
	recipe, err := ParseRecipe(path, data)
	if err != nil {
		return Recipe{}, err
	}
	if recipe.Name != name {
		return Recipe{}, fmt.Errorf("%s: name is %q, the file says %q", path, recipe.Name, name)
	}
	return recipe, nil
}

// ParseRecipe is strict: an unknown key or a wrong value is an error with file,
// line and key. What has a default gets it.
func ParseRecipe(path string, data []byte) (Recipe, error) {
	var recipe Recipe
	if err := strictyaml.Decode(path, data, &recipe); err != nil {
		return Recipe{}, err
	}
	if wrong := recipe.validate(); wrong != nil {
		return Recipe{}, fmt.Errorf("%s: line %d: %w", path, strictyaml.LineOf(data, wrong.place...), wrong)
	}
	recipe.settle()
	return recipe, nil
}

// settle brings what means the same to one form, for the key.
func (r *Recipe) settle() {
	if r.Optimisation == OptimiseO2 {
		r.Optimisation = ""
	}
	if r.Slimming == SlimmingNone {
		r.Slimming = ""
	}
}

// ReadFragments reads fragments of the recipe from the catalog folder, with the names that its source has for their options.
func (r Recipe) ReadFragments(catalog string, names []string) ([]kconfig.Fragment, error) {
	var renames kconfig.Renames
	if series := strings.TrimPrefix(r.Source.Debian, "linux-source-"); series != "" {
		var err error
		if renames, err = kconfig.ReadRenames(filepath.Join(catalog, "renames", series+".yaml")); err != nil {
			return nil, fmt.Errorf("kernel %q: %w", r.Name, err)
		}
	}
	fragments := make([]kconfig.Fragment, 0, len(names))
	for _, name := range names {
		fragment, err := kconfig.ReadFragment(filepath.Join(catalog, "fragments", name+".config"))
		if err != nil {
			return nil, fmt.Errorf("kernel %q: %w", r.Name, err)
		}
		fragments = append(fragments, renames.Fragment(fragment))
	}
	return fragments, nil
}

var (
	recipeName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)
	localVersion = regexp.MustCompile(`^-[a-z0-9][a-z0-9.-]{0,31}$`)
	packageName  = regexp.MustCompile(`^linux-source-[0-9]+\.[0-9]+$`)
	compilerName = regexp.MustCompile(`^(gcc|clang)-[0-9]+$`)
	fragmentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	digestName   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	commitName   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	patchName    = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*\.patch$`)
	objectName   = regexp.MustCompile(`^[A-Za-z0-9_./-]+\.o$`)
	debianName   = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+$`)
	moduleNames  = regexp.MustCompile(`^[A-Za-z0-9_]+$`)
	flagName     = regexp.MustCompile(`^-f[a-z][a-z0-9-]*(=[a-z0-9,]+)?$`)
	llvmName     = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	symbolName   = regexp.MustCompile(`^[A-Z0-9][A-Za-z0-9_]*$`)
)

// mistake is a value that is not allowed, and its place by keys and indices.
type mistake struct {
	place []any
	text  string
}

func (m *mistake) Error() string { return m.text }

// at begins a mistake at a place.
func at(place ...any) func(format string, args ...any) *mistake {
	names := make([]string, 0, len(place))
	for _, step := range place {
		if name, ok := step.(string); ok {
			names = append(names, name)
		}
	}
	return func(format string, args ...any) *mistake {
		key := fmt.Sprintf("key %q: ", strings.Join(names, ": "))
		return &mistake{place: place, text: key + fmt.Sprintf(format, args...)}
	}
}

// validate returns the first mistake, or nil.
func (r Recipe) validate() *mistake {
	optimisations := []Optimisation{"", OptimiseO2, OptimiseSize, OptimisePGO, OptimisePGOSafe, OptimiseAutoFDO}
	for _, check := range []struct {
		key, value string
		ok         bool
	}{
		{"name", r.Name, recipeName.MatchString(r.Name)},
		{"base", r.Base, r.Base == BaseTinyconfig || r.Base == BaseDistribution},
		{"localversion", r.LocalVersion, localVersion.MatchString(r.LocalVersion)},
		{"compiler", r.Compiler, compilerName.MatchString(r.Compiler)},
		{"optimisation", string(r.Optimisation), slices.Contains(optimisations, r.Optimisation)},
		{"slimming", r.Slimming, slices.Contains([]string{"", SlimmingNone, SlimmingTrace}, r.Slimming)},
		{"workload", r.Workload, r.Workload == "" || recipeName.MatchString(r.Workload)},
		{"training", r.Training, r.Training == "" || digestName.MatchString(r.Training)},
	} {
		if !check.ok {
			return at(check.key)("value %q is not allowed", check.value)
		}
	}
	for _, check := range []func() *mistake{
		r.Source.validate, r.validateFragments, r.validateLists, r.validateBranches, r.validatePatches, r.validateModules, r.validateTogether,
	} {
		if wrong := check(); wrong != nil {
			return wrong
		}
	}
	return nil
}

func (r Recipe) validateFragments() *mistake {
	if len(r.Fragments) == 0 {
		return at("fragments")("no fragment")
	}
	for i, name := range r.Fragments {
		if !fragmentName.MatchString(name) || slices.Contains(r.Fragments[:i], name) {
			return at("fragments", i)("%q is not a fragment's name or is there twice", name)
		}
	}
	for i, name := range r.Overrides {
		if !fragmentName.MatchString(name) || slices.Contains(r.Overrides[:i], name) || slices.Contains(r.Fragments, name) {
			return at("overrides", i)("%q is not a fragment's name or is there twice", name)
		}
	}
	return nil
}

func (r Recipe) validateLists() *mistake {
	for i, symbol := range r.Keep {
		if !symbolName.MatchString(symbol) || strings.HasPrefix(symbol, "CONFIG_") || slices.Contains(r.Keep[:i], symbol) {
			return at("keep", i)("%q is not an option without CONFIG_ or is there twice", symbol)
		}
	}
	for i, flag := range r.Flags {
		if !flagName.MatchString(flag) || slices.Contains(r.Flags[:i], flag) {
			return at("flags", i)("%q is not a flag of an optimisation (-fno-tracer) or is there twice", flag)
		}
		for _, own := range []string{"-fprofile", "-fno-profile", "-fbranch-prob", "-fno-branch-prob", "-fplugin", "-flto", "-fno-lto"} {
			if strings.HasPrefix(flag, own) {
				return at("flags", i)("%s is the factory's own", flag)
			}
		}
	}
	seen := map[string]bool{}
	for i, exclusion := range r.Exclude {
		object := exclusion.Object
		if !objectName.MatchString(object) || path.Clean(object) != object || path.IsAbs(object) ||
			strings.HasPrefix(object, "../") || seen[object] {
			return at("exclude", i, "object")("%q is not the path of an object (fs/namei.o) or is there twice", object)
		}
		if strings.TrimSpace(exclusion.Reason) == "" {
			return at("exclude", i, "reason")("%s is excluded without a reason", object)
		}
		seen[object] = true
	}
	return nil
}

func (r Recipe) validateBranches() *mistake {
	if r.Branches == nil {
		return nil
	}
	if r.Optimisation != OptimiseAutoFDO {
		return at("branches")("%s takes no branches", r.orDefault())
	}
	if !slices.Contains([]string{"", "O2", "O3"}, r.Branches.Level) {
		return at("branches", "level")("value %q is not allowed", r.Branches.Level)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Branches.LLVM)) {
		if !llvmName.MatchString(name) {
			return at("branches", "llvm", name)("%q is not the name of an option of LLVM's without dashes before it (import-hot-multiplier)", name)
		}
	}
	return nil
}

func (r Recipe) validatePatches() *mistake {
	seen := map[string]bool{}
	for i, patch := range r.Patches {
		if !patchName.MatchString(patch.File) || seen[patch.File] {
			return at("patches", i, "file")("%q is not the name of a .patch file or is there twice", patch.File)
		}
		if strings.TrimSpace(patch.Upstream) == "" {
			return at("patches", i, "upstream")("%s does not say what became of it in Linux", patch.File)
		}
		seen[patch.File] = true
	}
	return nil
}

func (r Recipe) validateModules() *mistake {
	seen := map[string]bool{}
	for i, m := range r.Modules {
		switch {
		case (m.Debian == "") == (m.Folder == ""):
			return at("modules", i)("say one of debian and folder")
		case m.Debian != "" && !debianName.MatchString(m.Debian):
			return at("modules", i, "debian")("%q is not a package's name", m.Debian)
		case m.Folder != "" && (!path.IsAbs(m.Folder) || path.Clean(m.Folder) != m.Folder):
			return at("modules", i, "folder")("%q is no absolute path", m.Folder)
		case seen[m.name()]:
			return at("modules", i)("%q is there twice", m.name())
		}
		seen[m.name()] = true
		for k, name := range m.Load {
			if !moduleNames.MatchString(name) {
				return at("modules", i, "load", k)("%q is not a module's name (with underscores, without .ko)", name)
			}
		}
	}
	return nil
}

// validateTogether looks at keys that make sense only with others.
func (r Recipe) validateTogether() *mistake {
	clang := strings.HasPrefix(r.Compiler, "clang-")
	switch {
	case r.Optimisation.Counted() && clang:
		return at("optimisation")("%s needs gcc's profiles, and the compiler is %s", r.Optimisation, r.Compiler)
	case r.Optimisation == OptimiseAutoFDO && !clang:
		return at("optimisation")("%s needs clang, and the compiler is %s", r.Optimisation, r.Compiler)
	case r.Base == BaseDistribution && !strings.HasPrefix(r.Source.Debian, sourcePrefix):
		return at("base")("%s needs a source of the distribution (debian: %s6.1)", r.Base, sourcePrefix)
	case r.Optimisation.Profiled() && r.Workload == "":
		return at("optimisation")("%s needs a workload to take the profile from", r.Optimisation)
	case r.Slimming == SlimmingTrace && r.Workload == "":
		return at("slimming")("%s needs a workload to trace", r.Slimming)
	case r.Training != "" && !r.NeedsRun():
		return at("training")("a kernel without slimming and without a profile learns nothing of runs")
	case len(r.Keep) > 0 && r.Slimming != SlimmingTrace:
		return at("keep")("there is no slimming to keep anything from")
	case len(r.Exclude) > 0 && !r.Optimisation.Counted():
		return at("exclude")("there is no object's profile to exclude")
	}
	return nil
}

// RecipeSource names where the source comes from, in one of three ways, each
// of which says exactly which source it is.
type RecipeSource struct {
	// Debian is an installed source package; its version is part of the key.
	Debian string `yaml:"debian"`
	// Tarball is a path or an http address, with its digest.
	Tarball string `yaml:"tarball" json:",omitempty"`
	Digest  string `yaml:"digest" json:",omitempty"`
	// Git is a repository, with a commit.
	Git    string `yaml:"git" json:",omitempty"`
	Commit string `yaml:"commit" json:",omitempty"`
}

func (s RecipeSource) validate() *mistake {
	kinds := 0
	for _, value := range []string{s.Debian, s.Tarball, s.Git} {
		if value != "" {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return at("source")("say one of debian, tarball and git, not %d", kinds)
	case s.Debian != "" && !packageName.MatchString(s.Debian):
		return at("source", "debian")("value %q is not allowed", s.Debian)
	case s.Tarball != "" && !digestName.MatchString(s.Digest):
		return at("source", "digest")("a tarball needs its digest, as sha256:...")
	case s.Git != "" && !commitName.MatchString(s.Commit):
		return at("source", "commit")("a repository needs a commit of 40 hex digits")
	case s.Tarball == "" && s.Digest != "":
		return at("source", "digest")("only a tarball has one")
	case s.Git == "" && s.Commit != "":
		return at("source", "commit")("only a repository has one")
	case strings.HasPrefix(s.Git, "-") || strings.HasPrefix(s.Tarball, "-"):
		return at("source")("begins with a dash")
	}
	return nil
}
