// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a dkms.conf says by itself ends a build before anything is compiled.
func TestPackagesAreReadBeforeTheBuild(t *testing.T) {
	const named = "PACKAGE_NAME=hello\nPACKAGE_VERSION=1\n"
	for name, c := range map[string]struct{ conf, load, want string }{
		"fit":                           {named, "[hello]", ""},
		"a dash is a module's _":        {named + "BUILT_MODULE_NAME[0]=hello-world\n", "[hello_world]", ""},
		"a module that it has not":      {named, "[world]", `load: it has no "world", but hello`},
		"needs others' modules":         {named + "BUILD_DEPENDS[0]=spl\n", "[]", "BUILD_DEPENDS=spl"},
		"another architecture":          {named + "BUILD_EXCLUSIVE_ARCH=aarch64\n", "[]", "it is not for x86_64"},
		"a later kernel":                {named + "BUILD_EXCLUSIVE_KERNEL_MIN=9.10\n", "[]", "it is not for kernel 9.9.0-fake"},
		"another kernel":                {named + "BUILD_EXCLUSIVE_KERNEL='^5[.]'\n", "[]", "it is not for kernel 9.9.0-fake"},
		"an option that may be there":   {named + "BUILD_EXCLUSIVE_CONFIG=CONFIG_PCI\n", "[]", ""},
		"a patch that is missing":       {named + "PATCH[0]=mend.patch\n", "[]", "there is no patches/mend.patch"},
		"no name":                       {"PACKAGE_VERSION=1\n", "[]", "no PACKAGE_NAME"},
		"a patch for another kernel":    {named + "PATCH[0]=mend.patch\nPATCH_MATCH[0]='^5'\n", "[]", ""},
		"a script that ends with error": {"false\nexit 3\n", "[]", "exit status"},
	} {
		f, folder := newFakeFactory(t), t.TempDir()
		f.source.Version = "9.9.0-1"
		f.fragment("base", "# Reason.\nCONFIG_MODULES=y\nCONFIG_WANTED=y\n")
		recipe := filepath.Join(f.dir, "catalog/kernels/fake.yaml")
		text, err := os.ReadFile(recipe)
		if err != nil {
			t.Fatal(err)
		}
		write(t, recipe, string(text)+fmt.Sprintf("modules:\n  - folder: %s\n    load: %s\n", folder, c.load))
		write(t, filepath.Join(folder, "dkms.conf"), c.conf)
		plan, err := f.builder().Plan(t.Context(), "fake")
		if err != nil {
			t.Fatal(err)
		}
		err = f.builder().CheckPackages(t.Context(), plan)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if n := f.builds(); n != 0 {
			t.Errorf("%s: %d builds", name, n)
		}
	}
}

func TestExpectedRelease(t *testing.T) {
	for version, want := range map[string]string{"6.1.192-2": "6.1.192-x", "6.12.9-1~bpo12+1": "6.12.9-x", "7.1~rc3-1~exp1": "", "7.1-1~exp1": ""} {
		p := Plan{Recipe: Recipe{LocalVersion: "-x"}, Source: SourcePackage{Name: "linux-source-6.1", Version: version}}
		if got := p.expectedRelease(); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
	if got := (Plan{Recipe: Recipe{LocalVersion: "-x"}, Source: SourcePackage{Name: "git", Version: "abc-1"}}).expectedRelease(); got != "" {
		t.Errorf("of git: %q", got)
	}
}
