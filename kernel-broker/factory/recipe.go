package factory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Recipe says how a kernel is made: catalog/kernels/<name>.yaml.
type Recipe struct {
	Name         string       `yaml:"name"`
	Description  string       `yaml:"description"`
	Source       RecipeSource `yaml:"source"`
	Base         string       `yaml:"base"`
	Fragments    []string     `yaml:"fragments"`
	LocalVersion string       `yaml:"localversion"`
	Compiler     string       `yaml:"compiler"`
}

// RecipeSource names where the source comes from; one kind exists so far.
type RecipeSource struct {
	Debian string `yaml:"debian"`
}

// BaseTinyconfig is the smallest configuration the kernel offers. What no
// fragment asks for is off.
const BaseTinyconfig = "tinyconfig"

var (
	recipeName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)
	localVersion = regexp.MustCompile(`^-[a-z0-9][a-z0-9.-]{0,31}$`)
	packageName  = regexp.MustCompile(`^linux-source-[0-9]+\.[0-9]+$`)
	compilerName = regexp.MustCompile(`^gcc-[0-9]+$`)
	fragmentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
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

// ParseRecipe is strict: an unknown key is an error with file, line and key.
func ParseRecipe(path string, data []byte) (Recipe, error) {
	var recipe Recipe
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&recipe); err != nil {
		return Recipe{}, fmt.Errorf("%s: %s", path, yamlMessage(err))
	}
	if err := decoder.Decode(new(Recipe)); !errors.Is(err, io.EOF) {
		return Recipe{}, fmt.Errorf("%s: more than one document", path)
	}
	if err := recipe.validate(); err != nil {
		return Recipe{}, fmt.Errorf("%s: %w", path, err)
	}
	return recipe, nil
}

// yamlMessage turns the decoder's words into "line 3: unknown key "x"".
func yamlMessage(err error) string {
	if errors.Is(err, io.EOF) {
		return "empty file"
	}
	var mistakes *yaml.TypeError
	if !errors.As(err, &mistakes) {
		return err.Error()
	}
	unknown := regexp.MustCompile(`^(line \d+): field (\S+) not found in type .*$`)
	lines := make([]string, len(mistakes.Errors))
	for i, mistake := range mistakes.Errors {
		lines[i] = unknown.ReplaceAllString(mistake, `$1: unknown key "$2"`)
	}
	return strings.Join(lines, "; ")
}

func (r Recipe) validate() error {
	checks := []struct {
		key, value string
		ok         bool
	}{
		{"name", r.Name, recipeName.MatchString(r.Name)},
		{"source: debian", r.Source.Debian, packageName.MatchString(r.Source.Debian)},
		{"base", r.Base, r.Base == BaseTinyconfig},
		{"localversion", r.LocalVersion, localVersion.MatchString(r.LocalVersion)},
		{"compiler", r.Compiler, compilerName.MatchString(r.Compiler)},
	}
	for _, check := range checks {
		if !check.ok {
			return fmt.Errorf("key %q: value %q is not allowed", check.key, check.value)
		}
	}
	if len(r.Fragments) == 0 {
		return fmt.Errorf("key %q: no fragment", "fragments")
	}
	seen := map[string]bool{}
	for _, name := range r.Fragments {
		if !fragmentName.MatchString(name) || seen[name] {
			return fmt.Errorf("key %q: %q is not a fragment's name or is there twice", "fragments", name)
		}
		seen[name] = true
	}
	return nil
}

// ReadFragments reads the recipe's fragments from the catalog folder.
func (r Recipe) ReadFragments(catalog string) ([]Fragment, error) {
	fragments := make([]Fragment, 0, len(r.Fragments))
	for _, name := range r.Fragments {
		fragment, err := ReadFragment(filepath.Join(catalog, "fragments", name+".config"))
		if err != nil {
			return nil, fmt.Errorf("kernel %q: %w", r.Name, err)
		}
		fragments = append(fragments, fragment)
	}
	return fragments, nil
}
