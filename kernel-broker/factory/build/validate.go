// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

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
		{"base", r.Base, r.Base == BaseTinyconfig},
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
		r.Source.validate, r.validateFragments, r.validateLists, r.validatePatches, r.validateTogether,
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

// validateTogether looks at keys that make sense only with others.
func (r Recipe) validateTogether() *mistake {
	clang := strings.HasPrefix(r.Compiler, "clang-")
	switch {
	case r.Optimisation.Counted() && clang:
		return at("optimisation")("%s needs gcc's profiles, and the compiler is %s", r.Optimisation, r.Compiler)
	case r.Optimisation == OptimiseAutoFDO && !clang:
		return at("optimisation")("%s needs clang, and the compiler is %s", r.Optimisation, r.Compiler)
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
