// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// resultFormat changes when the same inputs are to give another result, for
// example another manifest: results of the old format are then made again.
const resultFormat = 1

// Plan is a build with all its inputs known.
type Plan struct {
	Recipe    Recipe
	Fragments []kconfig.Fragment
	Merged    kconfig.Merged
	Source    SourcePackage
	// Distribution is the distribution's configuration, where it is the base.
	Distribution kconfig.Config
	Compiler     Compiler
	// Modules of others, with their versions.
	Modules []moduleSource
	// Pahole is the version of what makes BTF, for a kernel that has it; no
	// other kernel sees one.
	Pahole string
	Key    string
}

// Compiler is the tool chain, by what it says of itself.
type Compiler struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Linker  string `json:"linker"`
}

// Plan reads recipe and fragments and finds the source and the compiler.
func (b *Builder) Plan(ctx context.Context, name string) (Plan, error) {
	recipe, err := LoadRecipe(b.Catalog, name)
	if err != nil {
		return Plan{}, err
	}
	return b.PlanRecipe(ctx, recipe)
}

// PlanRecipe does the same for a recipe at hand: a kernel of the catalog with
// another optimisation or compiler, to compare it with.
func (b *Builder) PlanRecipe(ctx context.Context, recipe Recipe) (Plan, error) {
	recipe.settle()
	if wrong := recipe.validate(); wrong != nil {
		return Plan{}, fmt.Errorf("kernel %q: %w", recipe.Name, wrong)
	}
	fragments, err := recipe.ReadFragments(b.Catalog, recipe.Fragments)
	if err != nil {
		return Plan{}, err
	}
	overrides, err := recipe.ReadFragments(b.Catalog, recipe.Overrides)
	if err != nil {
		return Plan{}, err
	}
	merged, err := kconfig.Merge(append([]kconfig.Fragment{recipe.ownOptions(b.Catalog)}, fragments...))
	if err != nil {
		return Plan{}, fmt.Errorf("kernel %q: fragments contradict each other:\n%w", recipe.Name, err)
	}
	if merged, err = merged.Overlaid(slices.Concat(overrides, overlaysFor(recipe.Optimisation))...); err != nil {
		return Plan{}, fmt.Errorf("kernel %q: %w", recipe.Name, err)
	}
	source, err := b.sourcePackage(ctx, recipe)
	if err != nil {
		return Plan{}, fmt.Errorf("kernel %q: %w", recipe.Name, err)
	}
	compiler, err := findCompiler(ctx, recipe.Compiler)
	if err != nil {
		return Plan{}, fmt.Errorf("kernel %q: %w", recipe.Name, err)
	}
	plan := Plan{Recipe: recipe, Fragments: slices.Concat(fragments, overrides), Merged: merged, Source: source, Compiler: compiler}
	if recipe.Base == BaseDistribution {
		if plan.Distribution, err = distributionConfig(ctx, source); err != nil {
			return Plan{}, fmt.Errorf("kernel %q: %w", recipe.Name, err)
		}
	}
	if merged.Asks("DEBUG_INFO_BTF") {
		if plan.Pahole, err = output(ctx, "pahole", "--version"); err != nil {
			return Plan{}, fmt.Errorf("kernel %q: DEBUG_INFO_BTF needs the package pahole: %w", recipe.Name, err)
		}
	}
	if len(recipe.Modules) > 0 && !merged.Asks("MODULES") {
		return Plan{}, fmt.Errorf("kernel %q: modules need the fragment modules, or MODULES of another one", recipe.Name)
	}
	if plan.Modules, err = moduleSources(ctx, recipe); err != nil {
		return Plan{}, fmt.Errorf("kernel %q: %w", recipe.Name, err)
	}
	plan.Key, err = plan.key()
	return plan, err
}

// ownOptions are those that the recipe itself sets.
func (r Recipe) ownOptions(catalog string) kconfig.Fragment {
	path := filepath.Join(catalog, "kernels", r.Name+".yaml")
	return kconfig.Fragment{Name: r.Name, Options: []kconfig.Option{{
		Symbol: "LOCALVERSION", Value: `"` + r.LocalVersion + `"`, File: path, Line: 1,
	}}}
}

// key is the digest of every input that the result depends on.
func (p Plan) key() (string, error) {
	digests := map[string]string{}
	for _, fragment := range p.Fragments {
		digests[fragment.Name] = fragment.Digest
	}
	values := map[string]any{
		"format":    resultFormat,
		"recipe":    p.Recipe,
		"fragments": digests,
		"options":   p.Merged.Text(),
		"source":    p.Source.Name + " " + p.Source.Version,
		"compiler":  p.Compiler,
	}
	if p.Distribution != nil {
		values["base"] = digest.Of([]byte(p.Distribution.Text()))
	}
	if len(p.Source.Patches) > 0 {
		values["patches"] = p.Source.Patches
	}
	if p.Pahole != "" {
		values["pahole"] = p.Pahole
	}
	if len(p.Modules) > 0 {
		values["modules"] = p.Modules
	}
	inputs, err := json.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("kernel %q: inputs: %w", p.Recipe.Name, err)
	}
	sum := sha256.Sum256(inputs)
	return hex.EncodeToString(sum[:]), nil
}

// findCompiler asks the compiler, and the linker that goes with it.
func findCompiler(ctx context.Context, name string) (Compiler, error) {
	ld := linkerOf(name)
	version, err := output(ctx, name, "--version")
	if err != nil {
		return Compiler{}, fmt.Errorf("compiler %q: %w", name, err)
	}
	linker, err := output(ctx, ld, "--version")
	if err != nil {
		return Compiler{}, fmt.Errorf("linker %q: %w", ld, err)
	}
	return Compiler{Name: name, Version: firstLine(version), Linker: firstLine(linker)}, nil
}

// linkerOf is the name of the linker that belongs to a compiler.
func linkerOf(compiler string) string {
	if suffix, clang := strings.CutPrefix(compiler, "clang"); clang {
		return "ld.lld" + suffix
	}
	return "ld"
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}

// overlay makes a fragment of options that win over the recipe's. The reason
// stands in the place of a file's name in errors.
func overlay(reason string, options map[string]string) kconfig.Fragment {
	laid := kconfig.Fragment{Name: reason}
	for symbol, value := range options {
		laid.Options = append(laid.Options, kconfig.Option{Symbol: symbol, Value: value, File: reason, Line: 1})
	}
	slices.SortFunc(laid.Options, func(a, b kconfig.Option) int { return strings.Compare(a.Symbol, b.Symbol) })
	return laid
}

var (
	sizeOptions = overlay("optimisation Os", map[string]string{
		"CC_OPTIMIZE_FOR_PERFORMANCE": kconfig.Off,
		"CC_OPTIMIZE_FOR_SIZE":        "y",
	})
	// countingOptions make a kernel that counts every arc it takes and shows
	// the counters in debugfs.
	countingOptions = overlay("instrumented kernel", map[string]string{
		"DEBUG_FS":           "y",
		"DEBUG_FS_ALLOW_ALL": "y",
		"GCOV_KERNEL":        "y",
		"GCOV_PROFILE_ALL":   "y",
	})
	// mapOptions make the linker write down what it put where.
	mapOptions = overlay("traced kernel", map[string]string{"VMLINUX_MAP": "y"})
	// noLTO has each object's code stay in it, so that a trace tells which ran.
	noLTO = overlay("traced kernel", map[string]string{"LTO_NONE": "y", thinLTO: kconfig.Off})
)

// thinLTO is the option with which the linker compiles.
const thinLTO = "LTO_CLANG_THIN"

// overlaysFor are those that an optimisation implies for every variant.
func overlaysFor(o Optimisation) []kconfig.Fragment {
	if o == OptimiseSize {
		return []kconfig.Fragment{sizeOptions}
	}
	return nil
}
