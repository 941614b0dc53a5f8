// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

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

// BaseTinyconfig is the smallest configuration the kernel offers. What no
// fragment asks for is off.
const BaseTinyconfig = "tinyconfig"

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

// ReadFragments reads fragments of the recipe from the catalog folder.
func (r Recipe) ReadFragments(catalog string, names []string) ([]kconfig.Fragment, error) {
	fragments := make([]kconfig.Fragment, 0, len(names))
	for _, name := range names {
		fragment, err := kconfig.ReadFragment(filepath.Join(catalog, "fragments", name+".config"))
		if err != nil {
			return nil, fmt.Errorf("kernel %q: %w", r.Name, err)
		}
		fragments = append(fragments, fragment)
	}
	return fragments, nil
}
