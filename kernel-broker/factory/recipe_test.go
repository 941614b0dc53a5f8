package factory

import (
	"path/filepath"
	"strings"
	"testing"
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

func TestParseRecipeIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown key":      {"base: tiny", "bass: 1\nbase: tiny", `x.yaml: line 4: unknown key "bass"`},
		"unknown inner":    {"debian:", "debain:", `line 3: unknown key "debain"`},
		"key twice":        {"base:", "name: y\nbase:", `line 4: mapping key "name" already defined`},
		"wrong type":       {"[base]", "base", "line 5: cannot unmarshal"},
		"no fragments":     {"[base]", "[]", `key "fragments": no fragment`},
		"fragment twice":   {"[base]", "[base, base]", `"base" is not a fragment's name or is there twice`},
		"fragment a path":  {"[base]", "[../x]", `"../x" is not a fragment's name`},
		"other base":       {"tinyconfig", "defconfig", `key "base": value "defconfig"`},
		"other compiler":   {"gcc-12", "cc; rm", `key "compiler"`},
		"local version":    {"-x\n", "-X y\n", `key "localversion"`},
		"source elsewhere": {"linux-source-6.1", "bash", `key "source: debian"`},
		"two documents":    {"gcc-12\n", "gcc-12\n---\nname: y\n", "more than one document"},
		"empty":            {goodRecipe, "", "empty file"},
		"no yaml":          {goodRecipe, "a: [", "x.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(goodRecipe, c.from, c.to, 1)
			_, err := ParseRecipe("x.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

func FuzzParseRecipe(f *testing.F) {
	f.Add(goodRecipe)
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		recipe, err := ParseRecipe("x", []byte(text))
		if err == nil && recipe.validate() != nil {
			t.Errorf("accepted %+v", recipe)
		}
	})
}

// The repository's own catalog: every recipe reads, and its fragments agree.
func TestOwnCatalog(t *testing.T) {
	const catalog = "../../catalog"
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
		fragments, err := recipe.ReadFragments(catalog)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := Merge(fragments); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, fragment := range fragments {
			used[fragment.Name] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(catalog, "fragments", "*.config"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".config"); !used[name] {
			t.Errorf("no recipe uses the fragment %s", name)
		}
	}
}
